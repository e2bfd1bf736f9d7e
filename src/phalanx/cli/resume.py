"""`phalanx resume`: start an ended run again, with the same plan in the same directory."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.cli.run import FinalJson, Plain


def resume(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id, beginning of an id, job name, or directory.")
    ],
    plain: Plain = False,
    as_json: FinalJson = False,
) -> None:
    """Go on with a run that was stopped, has failed, or lost its agent; in the foreground, like `run`.

    Training goes on from the newest checkpoint that verifies. The budget of restarts is full again.
    """
    from phalanx.cli import foreground, runs
    from phalanx.cli.watch import RunWatch
    from phalanx.errors import UsageError
    from phalanx.events.status import RunState

    run_dir = runs.find(run)
    plan = runs.read_plan(run_dir)
    look = RunWatch(run_dir).look()
    if look.agent_alive:
        raise UsageError(
            f"{run_dir.name} is {look.status.state.value}; there is nothing to resume",
            f"`phalanx status {run_dir.name}` shows it, `phalanx cancel {run_dir.name}` stops it",
        )
    if look.status.state is RunState.SUCCEEDED:
        raise UsageError(
            f"{run_dir.name} has already succeeded; there is nothing to resume",
            "run the job anew with `phalanx run`, with more train.steps to train longer",
        )
    raise typer.Exit(foreground.supervise(run_dir, plan, plain=plain, as_json=as_json))
