"""What is asked where: one file for each subject, none of which decides anything."""
