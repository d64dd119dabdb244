"""Protobuf records."""
