"""The testing kit: what people need to test their own use of headgate, and stores of their own."""
