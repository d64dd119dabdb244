"""Events and changes into tables."""
