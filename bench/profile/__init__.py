"""`python -m bench profile`: the CPU time of a POST, a delivery and a storage transaction, by layer, beside the floor of each."""
