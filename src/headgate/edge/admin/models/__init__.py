"""What bodies and answers look like: one file for each subject."""
