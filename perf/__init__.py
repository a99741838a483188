"""Measurements of ringlog: every figure stands beside its limit, measured in the same run."""
