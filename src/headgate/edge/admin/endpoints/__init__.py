"""The endpoints with their models: one file for each subject. They translate; the services decide."""
