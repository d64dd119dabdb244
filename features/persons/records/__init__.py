"""Records with values of persons: what is declared so, and what is encrypted of it, and that nothing else was sent."""
