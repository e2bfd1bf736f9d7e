"""Names of variables that are the same in every process that builds the same model.

Keras names a layer without a name after its class and counts the layers of that class in the whole process
(`dense`, `dense_1`, ...), so a model that is built second has other paths than the same model built first;
and two variables may have the same path. Here counted names are counted anew within one model, and what is
still equal is numbered. Names that a user gave stay as they are. Pure: no TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

_COUNTER = re.compile(r"_\d+$")
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])")
# Classes that Keras names by count and that are no layers.
COUNTED_CLASSES = ("Variable", "SeedGenerator")


def counted_base(name: str, class_name: str) -> str | None:
    """`dense` for ("dense_7", "Dense") and ("dense", "Dense"); None when the name was given by the user."""
    base = _WORD.sub("_", re.sub(r"\W", "", class_name)).lower()
    return base if name == base or (_COUNTER.sub("", name) == base and name != base) else None


def stable_paths(paths: Sequence[str], counted: dict[str, str]) -> list[str]:
    """Give each of `paths` (in the model's own order) a name that is unique and stable between processes.

    `counted` maps each segment that Keras counted to its base, for example {"dense_7": "dense"}. The first
    of a base under one parent gets the base, the next base_1, in the order of `paths`. A path that comes
    twice gets "#2" at its second place.
    """
    renamed: dict[tuple[str, ...], str] = {}
    taken: set[tuple[str, ...]] = set()
    stable = []
    for path in paths:
        original = tuple(path.split("/"))
        new: tuple[str, ...] = ()
        for depth in range(1, len(original) + 1):
            key = original[:depth]
            if key not in renamed:
                renamed[key] = _first_free(new, counted.get(key[-1], key[-1]), taken)
            new = (*new, renamed[key])
            taken.add(new)
        stable.append("/".join(new))
    return numbered(stable)


def slot_paths(paths: Iterable[str], model_paths: Sequence[tuple[str, str]]) -> list[str]:
    """Turn the names of an optimizer's slots into paths.

    Keras flattens the path of a slot's variable into its name: `adam/dense_1_kernel_momentum`.
    `model_paths` holds (path, stable path) of the model's variables; with ("dense_1/kernel", "dense/kernel")
    the slot becomes `adam/dense/kernel/momentum`. The longest match wins; what matches none is kept.
    """
    flat = {path.replace("/", "_"): stable for path, stable in reversed(model_paths)}
    longest_first = sorted(flat, key=len, reverse=True)
    result = []
    for path in paths:
        parent, _, leaf = path.rpartition("/")
        owner = next((name for name in longest_first if leaf.startswith(f"{name}_")), None)
        if owner is not None:
            leaf = f"{flat[owner]}/{leaf[len(owner) + 1 :]}"
        result.append(f"{parent}/{leaf}" if parent else leaf)
    return result


def from_owner(path: str, owners: Container[str]) -> str:
    """Drop what comes before the last of `owners` in `path`: scopes that were open when it was built.

    An inner optimizer built by hand has `adam/iteration`, one built in the first step of its outer one
    `loss_scale_optimizer/adam/iteration`.
    """
    segments = path.split("/")
    starts = [place for place, segment in enumerate(segments[:-1]) if segment in owners]
    return "/".join(segments[starts[-1] :]) if starts else path


def numbered(names: Iterable[str]) -> list[str]:
    """Make names unique: the second `a` becomes `a#2`."""
    taken: set[str] = set()
    result = []
    for name in names:
        unique, count = name, 1
        while unique in taken:
            count += 1
            unique = f"{name}#{count}"
        taken.add(unique)
        result.append(unique)
    return result


def _first_free(parent: tuple[str, ...], base: str, taken: set[tuple[str, ...]]) -> str:
    name, count = base, 0
    while (*parent, name) in taken:
        count += 1
        name = f"{base}_{count}"
    return name
