"""The judges of histories."""
