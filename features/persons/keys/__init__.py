"""Keys of persons, and what is encrypted by them."""
