"""A node that the tests of a file share: bad input must leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.trial import Trial


@pytest.fixture(scope="module")
def shared_trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    with Trial(tmp_path_factory.mktemp("node")) as trial:
        yield trial
