"""Delta tables: reading, writing, change feeds, compaction."""
