"""TF_CONFIG, the variable in which TensorFlow's MultiWorkerMirroredStrategy finds its peers. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence


def tf_config(addresses: Sequence[str], rank: int) -> str:
    """TF_CONFIG for `rank`; `addresses` are "host:port" in the order of the ranks, rank 0 is the chief.

    Every task is of type "worker": TensorFlow takes worker 0 as the chief, and a chief of its own type
    would shift the ranks by one. Raises ValueError when the rank has no address or an address occurs twice:
    TensorFlow would then wait for ever.
    """
    if not 0 <= rank < len(addresses):
        raise ValueError(f"rank {rank} has no address; there are {len(addresses)}")
    if len(set(addresses)) != len(addresses):
        raise ValueError(f"an address occurs twice in {', '.join(addresses)}")
    cluster = {"worker": list(addresses)}
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
