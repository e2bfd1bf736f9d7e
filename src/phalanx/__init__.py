"""Phalanx: synchronous TensorFlow training that keeps its ranks closed when one falls.

Importing this package is cheap: it loads neither TensorFlow nor any room. `phalanx.train` is the
library that a training script uses; everything else belongs to the `phalanx` command.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers take it for true; the module `typing` would be most of the import time

__version__ = "0.1.0"
__all__ = ["__version__", "train"]

if TYPE_CHECKING:
    from phalanx import train


def __getattr__(name: str) -> object:
    """Load `phalanx.train` on first use, so that `import phalanx` stays free of it."""
    if name == "train":
        return importlib.import_module("phalanx.train")
    raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
