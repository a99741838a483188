"""Shared memory, the byte rings in it, and the doorbells that wake their readers."""
