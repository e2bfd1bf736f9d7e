"""`phalanx plan`: show what would run, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Overrides = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Override a value of the job file, e.g. train.steps=200."
    ),
]


def plan(job: Annotated[Path, typer.Argument(help="The job file.")]) -> None:
    """Show what would run and where each value came from."""
