"""What a history is judged by."""
