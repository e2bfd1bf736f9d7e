"""The worker's library: `run = phalanx.train.init()`.

The one room whose `__init__` is not empty, since `phalanx.train` is what a training script imports. Names
load on first use: `phalanx.train.bootstrap` starts workers of any kind and must not pull TensorFlow in.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = ["FitResult", "Run", "Settings", "data", "init"]

if TYPE_CHECKING:
    from phalanx.train import data
    from phalanx.train.context import Run, init
    from phalanx.train.loop import FitResult
    from phalanx.train.settings import Settings

_HOME = {"FitResult": "loop", "Run": "context", "Settings": "settings", "init": "context"}


def __getattr__(name: str) -> object:
    """Load a public name on first use. Raises AttributeError for any other."""
    if name == "data":
        return importlib.import_module("phalanx.train.data")
    if name in _HOME:
        return getattr(importlib.import_module(f"phalanx.train.{_HOME[name]}"), name)
    raise AttributeError(f"module 'phalanx.train' has no attribute {name!r}")
