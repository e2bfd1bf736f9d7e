"""`phalanx init DIR`: write a job file and a training script that run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[Path, typer.Argument(help="Directory to write into; made when missing.")],
) -> None:
    """Write a commented job file and a train.py that run at once."""
