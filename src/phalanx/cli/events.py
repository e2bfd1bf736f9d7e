"""`phalanx events`: what happened in a run, one line an event."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from phalanx.cli.status import RunArgument

_POLL_S = 0.2


def events(
    run: RunArgument = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run ends.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a line of JSON, as events.jsonl has it.")
    ] = False,
) -> None:
    """Show what happened in a run, the oldest first."""
    from phalanx.cli import runs, wording
    from phalanx.cli.watch import RunWatch
    from phalanx.events.kinds import Event

    def line(event: Event) -> str:
        if as_json:
            return _json_line(event)
        return f"{wording.clock(event.time, '%Y-%m-%d %H:%M:%S')}  {wording.event_line(event)}"

    watch = RunWatch(runs.find(run))
    while True:
        look = watch.look()
        if look.events:
            print("\n".join(line(event) for event in look.events), flush=True)
        if not follow or look.status.state.is_final:
            break
        time.sleep(_POLL_S)
    for problem in watch.problems:
        typer.echo(f"phalanx: {problem}", err=True)


def _json_line(event: object) -> str:
    """The event as standard JSON: a loss of NaN becomes null."""
    import json

    from phalanx.cli import summary
    from phalanx.events.kinds import Event

    assert isinstance(event, Event)
    return summary.to_json(json.loads(event.to_line()))
