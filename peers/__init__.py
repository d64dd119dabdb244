"""The same tables by Flink SQL, by plain Spark Structured Streaming and by the platform's own streams."""
