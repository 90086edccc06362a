"""Deliveries: channels that carry events to receivers, and the flow control in front of them."""
