"""`phalanx run`: plan a job and run it in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.plan import Overrides

if TYPE_CHECKING:
    from phalanx.spec.load import LoadedJob

Plain = Annotated[
    bool,
    typer.Option("--plain", "--no-live", help="Print lines, also in a terminal, instead of the live view."),
]
FinalJson = Annotated[bool, typer.Option("--json", help="Print nothing but the final status, as JSON.")]
_JOB_FILES = (".yaml", ".yml")


def run(
    target: Annotated[
        str, typer.Argument(metavar="JOB|SCRIPT", help="A job file (.yaml), a script, or MODULE:FUNCTION.")
    ],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGS", help="Arguments for the script, after --.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "-n", "--workers", help="Number of workers, for a script (default 1).", show_default=False
        ),
    ] = None,
    overrides: Overrides = [],  # noqa: B006  # Typer's way; it is never changed
    plain: Plain = False,
    as_json: FinalJson = False,
) -> None:
    """Run a job in the foreground and show how it goes.

    Ctrl-C stops it: the workers save a checkpoint and leave. A second Ctrl-C ends them at once.
    The exit code is the run's (docs/exit-codes.md).
    """
    import os
    from datetime import datetime

    from phalanx.cli import foreground, runs
    from phalanx.plan.make import make_plan

    loaded = _load(target, tuple(args or ()), workers, overrides)
    plan = make_plan(loaded.spec, cores=len(os.sched_getaffinity(0)))
    run_dir = runs.create(plan, datetime.now(), loaded.text)
    raise typer.Exit(foreground.supervise(run_dir, plan, plain=plain, as_json=as_json))


def _load(target: str, args: tuple[str, ...], workers: int | None, overrides: list[str]) -> LoadedJob:
    """The job that the command line names. Raises SpecError, UsageError."""
    from phalanx.errors import UsageError
    from phalanx.spec.load import job_from_script, load_job

    if not target.endswith(_JOB_FILES):
        return job_from_script(Path(target), 1 if workers is None else workers, args, overrides)
    if workers is not None:
        raise UsageError(
            f"-n {workers} does not go with a job file",
            f"use --set workers.count={workers}, or edit {target}",
        )
    if args:
        raise UsageError(
            f"arguments after the job file: {' '.join(args)}",
            f"the program's arguments stand under `args` in {target}",
        )
    return load_job(Path(target), overrides)
