import os

import pytest

from newcomer.errors import OptionError
from newcomer.rules.limits import require, share_out, thread_count


def test_a_value_out_of_range_is_named_with_what_is_wanted():
    require(True, "walks", 1, "an integer from 1")
    with pytest.raises(OptionError, match="walks is 0, but must be an integer from 1"):
        require(False, "walks", 0, "an integer from 1")


def test_threads_are_all_cores_unless_asked_for():
    assert thread_count(None) == len(os.sched_getaffinity(0))
    assert thread_count(3) == 3
    with pytest.raises(OptionError, match="threads is 0"):
        thread_count(0)


def test_no_more_threads_share_out_than_there_are_items():
    made: list[int] = []

    def scratch() -> int:
        made.append(1)
        return 0

    done: list[str] = []
    share_out(["a", "b"], lambda item, _: done.append(item), scratch, 500)
    assert sorted(done) == ["a", "b"] and len(made) <= 2
    share_out([], lambda item, _: done.append(item), scratch, 500)
    assert len(done) == 2
