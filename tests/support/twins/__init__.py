"""Slow, readable twins of the native kernel: the tests prove that the two agree."""
