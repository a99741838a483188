"""How the Python that runs this was built. Also a script, for a Python that has no ringlog yet: exit 1 if it is slow.

Brokers and clients decide in Python, so an interpreter that was built without its own measurements costs all of them.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig

DISTRIBUTION_DIRS = ("/usr/bin/", "/bin/")
"""Distributions build theirs with all optimisations, and not all of them say so in the configuration."""


def is_plain_build(arguments: str, executable: str) -> bool:
    """Whether it was configured without optimisation by profile.

    >>> is_plain_build("'--enable-shared' '--prefix=/home/me/.pyenv/versions/3.11.7'", "/home/me/.pyenv/bin/python3.11")
    True
    >>> is_plain_build("'--enable-optimizations' '--with-lto'", "/usr/local/bin/python3.11")
    False
    >>> is_plain_build("'--enable-shared' '--prefix=/usr'", "/usr/bin/python3.11")
    False
    """
    return "--enable-optimizations" not in arguments and not executable.startswith(DISTRIBUTION_DIRS)


def describe_interpreter() -> tuple[str, bool]:
    """Its name, and whether it is a plain build."""
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"{platform.python_implementation()} {platform.python_version()}", is_plain_build(
        arguments, executable
    )


if __name__ == "__main__":
    sys.exit(describe_interpreter()[1])
