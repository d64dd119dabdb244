"""Audits of tables and of topics."""
