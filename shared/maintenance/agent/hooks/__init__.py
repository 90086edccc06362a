"""Hooks: programs and Python functions that the agent runs, and ready-made recipes."""
