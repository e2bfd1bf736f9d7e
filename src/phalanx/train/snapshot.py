"""A model's whole training state as {path: array}, and back: weights, optimizer, loss scale, seed generators.

Reads and writes this process's copy of each variable, so neither direction is a collective: the chief alone
may take a snapshot, and each rank applies one by itself. Not part of it: metrics (a resume resets them), and
what belongs to the program, not to the model: Python's `random`, NumPy's generators, `tf.random.Generator`,
bare `tf.Variable`s, and `keras.random` functions called without a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from phalanx.errors import CheckpointError, CheckpointMismatchError
from phalanx.train import private_keras
from phalanx.train.variable_names import (
    COUNTED_CLASSES,
    counted_base,
    from_owner,
    slot_paths,
    stable_paths,
)

Arrays = dict[str, NDArray[Any]]
_SHOWN = 5


def prepare(model: Any) -> None:
    """Create the optimizer's variables where they are missing.

    Call it on every rank: creating is a collective under a multi-worker strategy.

    Raises CheckpointError for a model that is not built, or a second optimizer that is not.
    """
    if not model.built:
        raise CheckpointError(
            f"model {model.name!r} has no variables yet",
            "give it an Input, or call it once on a batch before training",
        )
    for optimizer in _optimizers_of(model):
        if optimizer.built:
            continue
        is_compiled = optimizer is getattr(model, "optimizer", None)
        if not is_compiled:
            raise CheckpointError(
                f"optimizer {optimizer.name!r} of model {model.name!r} has no variables yet",
                "call its build(trainable_variables) where you create it",
            )
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)


def take(model: Any) -> Arrays:
    """Return a copy of the state of `model`, which `prepare` has seen. Local: no collective.

    Keys are `model/<path>` and `optimizer/<path>`, the same in every process that builds this model.
    """
    return {path: np.asarray(_copies(variable)[0].numpy()) for path, variable in variables_of(model).items()}


def apply(model: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Set the state of `model`, which `prepare` has seen, to `arrays`. Local: no collective; all or nothing.

    Raises CheckpointMismatchError, before anything is changed, when paths, shapes or dtypes differ.
    """
    variables = variables_of(model)
    problems = mismatches({path: _form(variable) for path, variable in variables.items()}, arrays)
    if problems:
        shown = "".join(f"\n    {problem}" for problem in problems[:_SHOWN])
        more = f"\n    and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise CheckpointMismatchError(
            f"this checkpoint is of a different model: {len(problems)} of "
            f"{len(variables.keys() | arrays.keys())} variables do not fit{shown}{more}",
            "train with the model and optimizer that wrote it, or give this job another checkpoint.dir",
        )
    for path, variable in variables.items():
        for copy in _copies(variable):
            copy.assign(arrays[path])


def mismatches(
    wanted: Mapping[str, tuple[str, tuple[int, ...]]], arrays: Mapping[str, NDArray[Any]]
) -> list[str]:
    """Say what is wrong at each path where `arrays` differ from `wanted`, {path: (dtype, shape)}."""
    problems = []
    for path in sorted(wanted.keys() | arrays.keys()):
        if path not in arrays:
            problems.append(f"{path}: the model has it, the checkpoint does not")
        elif path not in wanted:
            problems.append(f"{path}: the checkpoint has it, the model does not")
        else:
            found, form = (arrays[path].dtype.name, arrays[path].shape), wanted[path]
            if found != form:
                problems.append(f"{path}: {_words(*form)} in the model, {_words(*found)} in the checkpoint")
    return problems


def variables_of(model: Any) -> dict[str, Any]:
    """All variables of the training state by their stable path; shared variables come once."""
    variables = _unique(model.variables)
    raw = [variable.path for variable in variables]
    stable = stable_paths(raw, _counted_names(private_keras.layers_of(model), raw))
    named = {f"model/{path}": variable for path, variable in zip(stable, variables, strict=True)}

    optimizers = _optimizers_of(model)
    slots = _unique(slot for optimizer in optimizers for slot in optimizer.variables)
    owners = [owner for optimizer in optimizers for owner in _with_inner(optimizer)]
    owned = [from_owner(slot.path, {owner.name for owner in owners}) for slot in slots]
    raw_slots = slot_paths(owned, list(zip(raw, stable, strict=True)))
    stable_slots = stable_paths(raw_slots, _counted_names(owners, raw_slots))
    named.update(zip((f"optimizer/{path}" for path in stable_slots), slots, strict=True))
    return named


def _counted_names(owners: Iterable[Any], paths: Iterable[str]) -> dict[str, str]:
    """Which segments of `paths` Keras counted, and their base: names of owners, and of unnamed variables."""
    named = [(owner.name, type(owner).__name__) for owner in owners]
    segments = {segment for path in paths for segment in path.split("/")}
    named += [(segment, class_name) for segment in segments for class_name in COUNTED_CLASSES]
    bases = ((name, counted_base(name, class_name)) for name, class_name in named)
    return {name: base for name, base in bases if base}


def _optimizers_of(model: Any) -> list[Any]:
    """The compiled optimizer and others that a subclass keeps as attributes, in the order of their making."""
    return _unique(item for item in vars(model).values() if isinstance(item, keras.optimizers.Optimizer))


def _with_inner(optimizer: Any) -> list[Any]:
    chain = [optimizer]
    while isinstance(chain[-1], keras.optimizers.LossScaleOptimizer):
        chain.append(chain[-1].inner_optimizer)
    return chain


def _unique(items: Iterable[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


def _copies(variable: Any) -> tuple[Any, ...]:
    """This process's copies of a Keras variable: one a replica (`values` of a distributed variable)."""
    value = variable.value
    return tuple(getattr(value, "values", (value,)))


def _form(variable: Any) -> tuple[str, tuple[int, ...]]:
    return keras.backend.standardize_dtype(variable.dtype), tuple(variable.shape)


def _words(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} of shape {list(shape)}"
