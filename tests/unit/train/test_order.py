"""The arithmetic of positions and shares."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.order import evaluation_shares, gradient_weight, share

sizes = st.integers(1, 500)
worlds = st.integers(1, 40)


@given(sizes, worlds)
def test_shares_cover_a_batch_once_in_order_and_evenly(batch: int, world_size: int) -> None:
    shares = [share(batch, world_size, rank) for rank in range(world_size)]
    assert [index for start, stop in shares for index in range(start, stop)] == list(range(batch))
    lengths = [stop - start for start, stop in shares]
    assert max(lengths) - min(lengths) <= 1


@given(sizes, worlds)
def test_weighted_means_give_the_mean_of_the_batch(batch: int, world_size: int) -> None:
    total = 0.0
    for rank in range(world_size):
        start, stop = share(batch, world_size, rank)
        weight = gradient_weight(batch, world_size, rank)
        if stop > start:
            mean = sum(range(start, stop)) / (stop - start)
            total += (1.0 if weight is None else weight) * mean / world_size
    assert math.isclose(total, (batch - 1) / 2, rel_tol=1e-9, abs_tol=1e-9)


def test_an_even_split_needs_no_weight() -> None:
    assert gradient_weight(16, 4, 3) is None
    assert gradient_weight(3, 2, 0) == 4 / 3


@given(st.integers(0, 300), sizes, worlds)
def test_evaluation_sees_every_example_once(examples: int, batch: int, world_size: int) -> None:
    seen: list[int] = []
    for rank in range(world_size):
        for start, stop in evaluation_shares(examples, batch, world_size, rank):
            assert stop > start
            seen += range(start, stop)
    assert sorted(seen) == list(range(examples))
