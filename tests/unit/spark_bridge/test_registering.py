"""Registering refuses workers that could not serve the source, and says what to set."""

from __future__ import annotations

import pytest

from ringlog.errors import InvalidRequest
from spark_bridge.registering import Facts, check_worker, facts_of

DRIVER = Facts("/env/bin/python", "3.11", "")


def test_the_same_interpreter_is_good():
    check_worker(DRIVER, DRIVER)


def test_a_worker_without_pyarrow_is_refused_with_what_to_set():
    with pytest.raises(InvalidRequest, match=r"lacks pyarrow: set PYSPARK_PYTHON=/env/bin/python"):
        check_worker(Facts("/usr/bin/python3", "3.11", "pyarrow"), DRIVER)


def test_a_worker_of_another_version_is_refused():
    with pytest.raises(InvalidRequest, match=r"which is Python 3\.9, and this is 3\.11"):
        check_worker(Facts("/usr/bin/python3", "3.9", ""), DRIVER)


def test_an_interpreter_is_asked_what_it_has(tmp_path):
    import sys

    assert facts_of(sys.executable).missing == ""
    assert facts_of(str(tmp_path / "nowhere")).missing == "a Python that starts"
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    assert "pyarrow" in facts_of(str(bare)).missing
