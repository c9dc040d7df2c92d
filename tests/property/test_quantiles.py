"""A percentile that is estimated from buckets lies in the bucket that holds the true one."""

from bisect import bisect_left
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from interlock.client.stats import find_quantile, spread
from interlock.kernel.metrics import BOUNDS_US

TIMES = st.lists(st.integers(0, 2 * BOUNDS_US[-1]), min_size=1, max_size=60)


@given(TIMES, st.sampled_from([0.5, 0.95]))
def test_the_estimate_is_in_the_bucket_of_the_true_one(times: list[int], share: float) -> None:
    counts = Counter(bisect_left(BOUNDS_US, one) for one in times)
    rank = max(0, -(-int(share * 100) * len(times) // 100) - 1)  # the first that so many do not exceed
    true = sorted(times)[rank]
    place = bisect_left(BOUNDS_US, true)
    estimate = find_quantile(counts, share) * 1_000_000
    if place == len(BOUNDS_US):
        assert estimate == BOUNDS_US[-1]
    else:
        low = BOUNDS_US[place - 1] if place else 0
        assert low - 1 <= estimate <= BOUNDS_US[place] + 1


@given(TIMES)
def test_half_is_no_more_than_nineteen_twentieths(times: list[int]) -> None:
    found = spread(Counter(bisect_left(BOUNDS_US, one) for one in times))
    assert found
    assert (found.count, found.p50 <= found.p95) == (len(times), True)


def test_nothing_has_no_percentile() -> None:
    assert spread(None) is spread({}) is None
