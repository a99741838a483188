"""Benchmarks of a whole node through its client, each beside the limit that the machine sets to it."""
