"""What is measured, always against the obvious alternative in the same run."""
