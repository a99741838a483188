"""Loads the liburing package without its scanner, which asks for more than a package that was installed can give.

Its `__init__` calls `dynamic_import.importer()`, which removes and writes a cache beside the package at every import
(a slip in it finds each cache out of date). So a node of a user who may not write there (a system-wide installation,
a read-only image) would find no io_uring, and of two nodes that start at once one could. Here the package looks its
names up in its own modules instead.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_PACKAGE = "liburing"
_SCANNER = "dynamic_import"
_MODULES = ("queue", "file", "helper", "time", "poll", "os", "common")
"""Those of the package that have what ringlog uses."""


def load_liburing() -> None:
    """Make `from liburing import …` work, and leave nothing on disk. ImportError when there is no such package."""
    if _PACKAGE in sys.modules:
        return  # in its own way, by somebody else
    scanner = ModuleType(_SCANNER)
    vars(scanner)["importer"] = _look_names_up
    before = sys.modules.get(_SCANNER)
    sys.modules[_SCANNER] = scanner
    try:
        importlib.import_module(_PACKAGE)
    finally:
        del sys.modules[_SCANNER]
        if before is not None:
            sys.modules[_SCANNER] = before


def _look_names_up(**_: object) -> None:
    """Stands in for `importer()`, in the middle of the package's import."""
    vars(sys.modules[_PACKAGE])["__getattr__"] = _find


def _find(name: str) -> Any:
    if not name.startswith("__"):
        for module in _MODULES:
            found = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"{_PACKAGE} has no {name}")
