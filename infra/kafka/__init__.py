"""The Kafka broker: the supervised process, topics, offsets."""
