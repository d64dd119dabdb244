"""What a good row and a good table are."""
