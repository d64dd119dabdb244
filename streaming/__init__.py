"""Keep live tables fresh."""
