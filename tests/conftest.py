"""Settings that all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# Timings on shared machines say nothing about a property; a failure prints how to replay it.
settings.register_profile("ringlog", deadline=None, print_blob=True)
settings.load_profile("ringlog")

# A shell ignores Ctrl-C for what it runs in the background, and all that is started there inherits it: then every test
# of Ctrl-C would wait for a minute, and fail.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
