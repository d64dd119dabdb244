"""Change capture: Kafka Connect, Debezium's connector within it, and what the database's catalog says."""
