"""What ringlog needs from a machine, and what costs it speed there."""
