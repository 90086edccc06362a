"""Azure Service Bus: which namespaces a channel may reach, and the credentials of its requests."""
