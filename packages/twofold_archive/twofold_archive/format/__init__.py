"""The file format of archived segments: record batches, indexes, metadata."""
