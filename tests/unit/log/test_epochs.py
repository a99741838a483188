"""Promises of the leader-epoch history."""

from __future__ import annotations

import pytest

from ringlog.errors import InvariantBroken
from ringlog.log.epochs import EpochHistory, EpochStart


def test_only_the_first_batch_of_an_epoch_leaves_a_mark():
    history = EpochHistory()
    for epoch, offset in [(0, 0), (0, 10), (2, 20), (2, 30)]:
        history.note(epoch, offset)
    assert history.starts == (EpochStart(0, 0), EpochStart(2, 20))


def test_an_epoch_never_goes_back():
    history = EpochHistory([EpochStart(5, 0)])
    with pytest.raises(InvariantBroken):
        history.note(4, 10)


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    history = EpochHistory([EpochStart(1, 0), EpochStart(4, 100)])
    assert history.end_of(1, log_end=150) == EpochStart(1, 100)
    assert history.end_of(3, log_end=150) == EpochStart(1, 100)
    assert history.end_of(9, log_end=150) == EpochStart(4, 150)
    assert history.end_of(0, log_end=150) is None


def test_a_cut_at_the_end_forgets_epochs_that_began_there():
    history = EpochHistory([EpochStart(1, 0), EpochStart(4, 100)])
    history.cut_end(100)
    assert history.starts == (EpochStart(1, 0),)


def test_a_cut_at_the_start_keeps_the_epoch_of_the_first_record():
    history = EpochHistory([EpochStart(1, 0), EpochStart(4, 100), EpochStart(5, 200)])
    history.cut_start(150)
    assert history.starts == (EpochStart(4, 150), EpochStart(5, 200))


def test_a_new_epoch_takes_the_place_of_one_of_which_nothing_is_left():
    history = EpochHistory([EpochStart(1, 0), EpochStart(3, 50)])
    history.cut_start(80)
    history.note(4, 80)
    assert history.starts == (EpochStart(4, 80),)
