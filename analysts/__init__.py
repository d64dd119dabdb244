"""Views over all tables in a file of DuckDB, for people who query, and what is made of them."""
