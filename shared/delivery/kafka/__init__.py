"""Kafka through librdkafka (confluent-kafka): connections to brokers and to the Kafka endpoint of Event Hubs.

    connection   login, checks of servers, configuration of clients
    producer     sends messages without blocking the event loop, for the `kafka` channel

The library is imported when a client is opened: an app without Kafka never loads it.
"""
