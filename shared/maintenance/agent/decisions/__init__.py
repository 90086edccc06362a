"""The agent's decisions: pure functions from state and observation to new state and effects."""
