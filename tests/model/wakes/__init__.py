"""The model of planned wakes: filers, looks, the queue, and the plan."""
