"""Changes of databases, captured into topics."""
