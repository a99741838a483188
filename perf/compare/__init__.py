"""Ringlog beside its peers and beside the limits of the machine: one run, equal durability, verified delivery."""
