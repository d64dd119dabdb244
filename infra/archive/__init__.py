"""The archive of the broker: which segments it has, and their records in Spark."""
