"""Change capture: the database, Kafka Connect, and Debezium's connector within it."""
