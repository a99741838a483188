"""The native kernel: the part of ringlog that moves bytes."""
