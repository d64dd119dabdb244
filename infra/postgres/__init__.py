"""PostgreSQL: the supervised server, and statements to the captured database."""
