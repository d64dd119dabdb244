"""Reads the plans of tables' functions, and SQL text, into the algebra."""
