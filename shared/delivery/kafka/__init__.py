"""Kafka, spoken through librdkafka (confluent-kafka): to brokers, and to Event Hubs' Kafka endpoint.

    connect    where brokers are, who we are to them, what a client is configured with
    producer   puts messages without blocking the event loop; the channel `kafka` sends through it
    consumer   a member of a consumer group, likewise
    sources    the setting `TOCSIN_KAFKA_SOURCES`
    ingest     events in: topics of the sources into `Intake`, offsets committed once they are stored

The library is imported when a client is opened: an app without Kafka never loads it.
"""
