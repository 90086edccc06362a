"""Deliveries: channels that carry events to receivers, and the flow control in front of them. See docs/explain/flow-control.md.

    flow/                  flow control: rates, deliveries at once, pauses; turns of the deliveries of one process
    channels/              the channel types: settings, checks, and a `Sender` for each; the verdict on an answer
    fleet_owners           fleet channels: the server that owns the partition of an event's ordering key
    entra/                 tokens of Entra that http channels send to APIs
    client_certificates/   client certificates of http channels
    service_bus            credentials and namespaces of Service Bus channels
    kafka/                 connections to Kafka, for the channel and for the source of events
    circuit_breaker        the states of a channel's circuit breaker: pure
    egress_guard           the addresses that a channel may reach; `name_lookups` resolves their names
    identity_tokens        tokens of the app's own identity
    notices                what a tenant can have told to one of its channels
    tracing                spans of deliveries

One delivery: an owner asks `flow.service` before it claims the event. `scheduler.firing.attempt` gives a `Target` and an
`OutgoingDelivery` (`channels.ports`) to the `Sender` of the channel's type. `channels.http` signs the request and hands it to
`channels.guarded_client`, which resolves the name, lets `egress_guard` check each address, and sends. `channels.rules` judges the answer,
and `flow.service` counts the verdict for the circuit breaker.
"""
