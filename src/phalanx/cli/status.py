"""`phalanx status`: how a run is doing, or how it ended."""

from __future__ import annotations

from typing import Annotated

import typer

RunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="Id, beginning of an id, job name (its newest run), or directory; by default the newest run.",
    ),
]


def status(
    run: RunArgument = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; docs/running.md lists the keys.")
    ] = False,
) -> None:
    """Show how a run is doing, or how it ended."""
    from phalanx.cli import runs, summary
    from phalanx.cli.watch import RunWatch

    run_dir = runs.find(run)
    watch = RunWatch(run_dir)
    look = watch.look()
    if as_json:
        data = summary.document(
            run_dir,
            look.status,
            agent_alive=look.agent_alive,
            checkpoint_dir=watch.checkpoint_dir,
            problems=watch.problems,
        )
        print(summary.to_json(data, indent=2))
        return
    tail = watch.plan.logs.tail_lines if watch.plan else 15
    print(summary.summary(run_dir.name, look.status, watch.checkpoint_dir, detail_lines=tail, ranks=True))
    for problem in watch.problems:
        typer.echo(f"phalanx: {problem}", err=True)
