"""Measurements of a cluster of three nodes on one machine."""
