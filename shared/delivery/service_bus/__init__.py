"""Azure Service Bus: the namespaces that a channel may reach, and the credentials of its requests."""
