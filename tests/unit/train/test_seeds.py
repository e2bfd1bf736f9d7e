"""Random masks of each rank: derived from the base state, and back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from phalanx.train.seeds import make_own, rank_mix, seed_states


class State:
    """A variable as Keras has it, in memory."""

    def __init__(self, path: str, value: list[int]) -> None:
        self.path = path
        self.value: np.ndarray[Any, Any] = np.array(value, dtype=np.uint32)

    def numpy(self) -> np.ndarray[Any, Any]:
        return np.array(self.value)

    def assign(self, value: np.ndarray[Any, Any]) -> None:
        self.value = value


def test_ranks_differ_and_rank_0_keeps_the_base() -> None:
    mixes = [rank_mix(rank) for rank in range(4096)]
    assert mixes[0] == 0
    assert len(set(mixes)) == 4096
    assert all(0 <= mix < 2**32 for mix in mixes)


def test_only_the_seed_is_changed_and_the_change_undoes_itself() -> None:
    state = State("dropout/seed_generator/seed_generator_state", [123, 45])
    make_own([state], 3)
    assert state.value[0] == 123 ^ rank_mix(3)
    assert state.value[1] == 45
    make_own([state], 3)
    assert state.value.tolist() == [123, 45]


def test_seed_generators_are_found_by_their_path() -> None:
    state = State("model/dropout/seed_generator_state", [1, 0])
    model = SimpleNamespace(variables=[State("dense/kernel", [1, 1]), state])
    assert seed_states(model) == [state]
