"""What a table's function does, read from its plan without a JVM: relational algebra, and what follows from it."""
