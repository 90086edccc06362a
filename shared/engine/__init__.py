"""The protocol engine: effects, the runners that carry them out, retries and cursors."""
