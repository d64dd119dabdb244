"""Encodings of records: bytes to Arrow columns."""
