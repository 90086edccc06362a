"""The Azure adapters of Table and Queue storage."""
