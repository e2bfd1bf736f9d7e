"""The order of examples is a function of (seed, epoch, step, global batch), not of the number of workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow

PROGRAM = Path(__file__).parent / "programs" / "data_order.py"
N, BATCH = 23, 10
GOLDEN = [6, 1, 14, 0, 16, 15, 22, 19, 12, 18]  # the first batch with seed 5


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("data"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_global_batches_do_not_depend_on_the_number_of_workers(told: Any) -> None:
    batches = told["by_world_size"]
    assert batches["2"] == batches["3"] == batches["4"] == batches["1"]


def test_every_epoch_uses_each_example_once_in_an_order_of_its_own(told: Any) -> None:
    stream = [example for batch in told["by_world_size"]["1"] for example in batch]
    epochs = [stream[start : start + N] for start in range(0, len(stream) - N, N)]
    assert len(epochs) == 5
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 5
    assert all(len(batch) == BATCH for batch in told["by_world_size"]["1"])


def test_the_order_never_changes_between_versions(told: Any) -> None:
    """A checkpoint of an older version must go on with the same examples."""
    assert told["by_world_size"]["1"][0] == GOLDEN


def test_resuming_gives_the_same_batches(told: Any) -> None:
    assert told["resumed"] == told["by_world_size"]["1"][7:]


def test_a_far_step_costs_nothing(told: Any) -> None:
    (batch,) = told["far"]
    assert len(batch) == BATCH
    assert set(batch) <= set(range(N))


def test_orders_look_random(told: Any) -> None:
    """Of a random order one example stays in place on average, whatever their number: Poisson with mean 1."""
    orders = told["orders"]
    assert len({tuple(order) for order in orders}) == len(orders)
    in_place = sum(index == example for order in orders for index, example in enumerate(order))
    assert abs(in_place / len(orders) - 1) < 4 / len(orders) ** 0.5
    for position in (0, N // 2, N - 1):
        seen = [order[position] for order in orders]
        # Chi-square with 22 degrees of freedom: 60 is passed by chance once in 50,000.
        expected = len(orders) / N
        assert sum((seen.count(example) - expected) ** 2 / expected for example in range(N)) < 60


def test_without_shuffling_examples_come_in_order(told: Any) -> None:
    assert told["in_order"] == [
        [*range(10)],
        [*range(10, 20)],
        [20, 21, 22, *range(7)],
    ]


def test_one_example_fills_a_batch(told: Any) -> None:
    assert told["one_example"] == [[0] * BATCH]


def test_evaluation_sees_every_example_once(told: Any) -> None:
    for world_size, seen in told["evaluated"].items():
        assert sorted(seen) == list(range(N)), world_size


def test_nests_keep_their_form_and_floats_become_those_of_keras(told: Any) -> None:
    assert told["nested"] == {
        "a": ["float32", [[0.0, 1.0], [2.0, 3.0]], [2, 2]],
        "t": ["x", "ü"],
        "y": [[0, 1], [2, 4]],
        "weight": [1.0, 2.0],
    }


def test_the_tuner_is_off_unless_it_was_asked_for(told: Any) -> None:
    assert told["tuned"] == [True, False, True]


def test_a_memory_map_is_not_loaded_whole(told: Any) -> None:
    assert told["mapped"] == 42


def test_arrays_that_cannot_be_data_are_told(told: Any) -> None:
    refused = told["refused"]
    assert "x: [3], y: [4]" in refused["lengths"]
    assert "at least one" in refused["empty"]
    assert "numpy.asarray" in refused["numbers"]
    assert "pass y as well" in refused["weight_alone"]
