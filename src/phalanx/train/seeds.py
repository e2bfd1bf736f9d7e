"""Gives each rank its own random masks (dropout) while all weights stay equal.

A Keras SeedGenerator holds [seed, counter] and adds one to the counter at each use, alike on all ranks. Rank
r uses seed XOR mix(r) with mix(0) = 0: the chief's state is the base state, so what the chief saves is what
every rank starts from after a restore, with any number of ranks.
"""

from __future__ import annotations

from typing import Any

_GOLDEN = 0x9E3779B9


def rank_mix(rank: int) -> int:
    """A 32-bit number for each rank, 0 for rank 0: the finalizer of MurmurHash3 over rank * 2^32 / phi."""
    mixed = (rank * _GOLDEN) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


def seed_states(model: Any) -> list[Any]:
    """The state variables (uint32, shape [2]) of all SeedGenerators of a built model."""
    return [variable for variable in model.variables if variable.path.endswith("seed_generator_state")]


def make_own(states: list[Any], rank: int) -> None:
    """Turn base states into those of `rank`. Call it outside `strategy.run`: there assigning is local."""
    for state in states:
        base = state.numpy()
        base[0] ^= type(base[0])(rank_mix(rank))
        state.assign(base)
