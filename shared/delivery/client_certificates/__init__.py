"""Client certificates (mutual TLS) of http channels: which tenant may use which, where they are kept, and how they are renewed."""
