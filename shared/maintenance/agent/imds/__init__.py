"""The Azure Instance Metadata Service: its documents, its client, and the identity of this machine."""
