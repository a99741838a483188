"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# Timings on shared machines say nothing about a property; a failure prints how to replay it.
settings.register_profile("ringlog", deadline=None, print_blob=True)
settings.load_profile("ringlog")
