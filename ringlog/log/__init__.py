"""The partition log: segments, indexes, recovery and producer state."""
