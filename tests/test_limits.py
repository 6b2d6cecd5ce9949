import os

import pytest

from newcomer.errors import OptionError
from newcomer.rules.limits import require, thread_count


def test_a_value_out_of_range_is_named_with_what_is_wanted():
    require(True, "walks", 1, "an integer from 1")
    with pytest.raises(OptionError, match="walks is 0, but must be an integer from 1"):
        require(False, "walks", 0, "an integer from 1")


def test_threads_are_all_cores_unless_asked_for():
    assert thread_count(None) == len(os.sched_getaffinity(0))
    assert thread_count(3) == 3
    with pytest.raises(OptionError, match="threads is 0"):
        thread_count(0)
