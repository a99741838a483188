"""Measures what a machine can do."""
