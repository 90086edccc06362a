"""The checker itself: machines of generators, states, exploration, fairness."""
