"""Raft as step functions: who leads the metadata, and what of its log is committed. Pure: I/O is the caller's."""
