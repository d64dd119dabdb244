"""Relational algebra that tables' functions are read as, and what follows from it, without a JVM."""
