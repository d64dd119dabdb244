"""Audits of tables and topics."""
