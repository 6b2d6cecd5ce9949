from bisect import bisect_left

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from newcomer.rules.compiled import lower_bound

VALUES = st.lists(st.integers(0, 9), max_size=12).map(sorted)


@given(VALUES, st.integers(-1, 10), st.data())
def test_lower_bound_is_bisect_left_within_a_slice(values, wanted, data):
    low = data.draw(st.integers(0, len(values)))
    high = data.draw(st.integers(low, len(values)))
    assert lower_bound(np.array(values, dtype=np.int32), low, high, wanted) == bisect_left(values, wanted, low, high)
