"""What `headgate doctor` looks at, one subject in each module; `catalog` has everything that it can find."""
