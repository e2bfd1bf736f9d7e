"""Which example is used when: arithmetic of positions and shares. Pure: no TensorFlow, no I/O.

The examples of a data set form one endless stream of positions. Position p belongs to epoch p // N and is the
(p % N)-th example of that epoch; global step s uses the positions s*B .. (s+1)*B - 1. So each example is used
once an epoch, no batch is ragged, a batch may end one epoch and begin the next, and nothing depends on the
number of workers: they only split each global batch.
"""

from __future__ import annotations


def share(batch: int, world_size: int, rank: int) -> tuple[int, int]:
    """The part [start, stop) of a batch that `rank` takes: contiguous, sizes differing by at most one.

    The first `batch % world_size` ranks take one more; of a batch smaller than the gang the last get nothing.
    """
    size, longer = divmod(batch, world_size)
    start = rank * size + min(rank, longer)
    return start, start + size + (rank < longer)


def gradient_weight(batch: int, world_size: int, rank: int) -> float | None:
    """What this rank's mean gradient counts relative to an even split; None when the split is even.

    The mean over the global batch of B examples is sum_r (n_r / B) * mean_r. Keras divides every rank's loss
    by the number of ranks W and the gradients are summed, so what is missing is the factor n_r * W / B.
    """
    if batch % world_size == 0:
        return None
    start, stop = share(batch, world_size, rank)
    return (stop - start) * world_size / batch


def evaluation_shares(examples: int, batch: int, world_size: int, rank: int) -> list[tuple[int, int]]:
    """The index ranges that `rank` evaluates, one a batch: over all ranks every example comes once."""
    ranges = []
    for first in range(0, examples, batch):
        start, stop = share(min(batch, examples - first), world_size, rank)
        if stop > start:
            ranges.append((first + start, first + stop))
    return ranges
