"""Plans of tables' functions, read without a JVM: relational algebra, and what follows from it."""
