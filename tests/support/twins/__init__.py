"""Slow, readable twins of the native kernel. Tests hold the two equal; nothing else uses them."""
