"""Views over all tables for people who query: a file of DuckDB, SQL, shells, notebooks, a server for assistants."""
