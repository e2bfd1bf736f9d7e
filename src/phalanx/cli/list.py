"""`phalanx list`: the runs of this home, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from phalanx.events.status import RunStatus

_SHOWN = 20
_HEADINGS = ("RUN", "STATE", "STEP", "ROUNDS", "STARTED", "TIME")


def list_runs(
    everything: Annotated[
        bool, typer.Option("--all", help=f"Show all runs, not only the last {_SHOWN}.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """List the runs, the newest first."""
    from phalanx.cli import runs, summary
    from phalanx.cli.watch import RunWatch

    found = runs.all_runs()
    shown = found if everything else found[:_SHOWN]
    looked = [(run_dir, RunWatch(run_dir).look().status) for run_dir in shown]
    if as_json:
        print(summary.to_json([_entry(run_dir, status) for run_dir, status in looked], indent=2))
        return
    if not found:
        print(f"no runs in {runs.runs_dir()}")
        return
    print("\n".join(_table(looked)))
    if len(shown) < len(found):
        print(f"and {len(found) - len(shown)} older ones: phalanx list --all")


def _entry(run_dir: Path, status: RunStatus) -> dict[str, object]:
    return {
        "run": run_dir.name,
        "job": status.job,
        "state": status.state.value,
        "dir": str(run_dir),
        "exit_code": status.exit_code,
        "created": status.created,
        "finished": status.finished,
        "elapsed_s": status.elapsed_s,
        "round": status.round,
        "step": status.step,
        "target_steps": status.target_steps,
    }


def _table(looked: list[tuple[Path, RunStatus]]) -> list[str]:
    """Aligned columns, never cut: ids are there to be copied."""
    from phalanx.cli import summary, wording

    rows: list[tuple[str, ...]] = [_HEADINGS]
    for run_dir, status in looked:
        rows.append(
            (
                run_dir.name,
                status.state.value,
                summary.steps_text(status),
                str(status.round or "-"),
                wording.clock(status.created, "%Y-%m-%d %H:%M"),
                wording.duration(status.elapsed_s),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
