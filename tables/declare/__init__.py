"""Topics and tables as they are declared, and what follows from a declaration."""
