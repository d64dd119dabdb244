"""What makes declarations work; a declaration imports from `tables` alone."""
