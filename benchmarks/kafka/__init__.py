"""Kafka: how fast a topic is read, and how fast from Kafka to Kafka, each program with a broker."""
