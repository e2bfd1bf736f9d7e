"""`phalanx cancel`: stop a run from another shell."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from phalanx.cli.watch import RunWatch

_POLL_S = 0.1
# The agent hears a signal at once unless it hangs; then only SIGKILL helps, and its workers die with it.
_ACKNOWLEDGE_S = 5.0
# A run whose agent does not begin within 10 s is lost (`watch`).
_BEGIN_S = 15.0
_KILLED_S = 30.0
# Beyond the grace period: what killing and writing the end of the record may take.
_AFTER_GRACE_S = 30.0


def cancel(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id, beginning of an id, job name, or directory.")
    ],
    now: Annotated[
        bool, typer.Option("--now", help="Kill the workers at once, without a checkpoint.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the run has ended.")] = True,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0, help="How long.", show_default="grace period + 30"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Stop a run: its workers save a checkpoint within the grace period and leave.

    A run that has already ended is left as it is, with exit code 0; one that is already stopping is only
    waited for. When the run has not ended in time the exit code is 84, and the request stands.
    """
    from phalanx.cli.watch import RunWatch
    from phalanx.errors import InfrastructureError
    from phalanx.events.status import RunState

    run_dir = _find(run)
    watch = RunWatch(run_dir)
    look = watch.look()
    # A second signal would kill workers that are saving.
    stopping = look.agent_alive and look.status.state is RunState.STOPPING
    if not stopping and not _ask(run_dir, watch):
        _tell(run_dir, watch, as_json, cancelled=False)
        return
    if now:
        _kill(run_dir, watch)
    if wait or now:
        grace_s = watch.plan.failure.grace_s if watch.plan else 30.0
        limit_s = grace_s + _AFTER_GRACE_S if timeout_s is None else timeout_s
        if not _wait(lambda: not watch.look().agent_alive, limit_s):
            raise InfrastructureError(
                f"{run_dir.name} has not ended within {limit_s:g} s; it was asked to stop",
                f"wait for it with `phalanx events -f {run_dir.name}`, "
                f"or end it with `phalanx cancel --now {run_dir.name}`",
            )
    _tell(run_dir, watch, as_json, cancelled=True)


def _find(text: str) -> Path:
    """The run that `text` names; a job's name is its newest run or, when that has ended, the newest alive."""
    from phalanx.backends.local import LocalBackend
    from phalanx.cli import runs
    from phalanx.cli.watch import RunWatch

    newest = runs.find(text)
    if runs.job_of(newest.name) != text or not RunWatch(newest).look().status.state.is_final:
        return newest
    # A start that was refused, on the same checkpoint directory for example, must not hide the run at work.
    backend = LocalBackend()
    same_job = (run for run in runs.all_runs() if runs.job_of(run.name) == text)
    return next((run for run in same_job if backend.observe(run).alive), newest)


def _ask(run_dir: Path, watch: RunWatch) -> bool:
    """Ask the agent to stop; False when there is none. A run that was just made may not have one yet."""
    from phalanx.backends.local import LocalBackend

    backend = LocalBackend()
    deadline = time.monotonic() + _BEGIN_S
    while not (asked := backend.cancel(run_dir, signal.SIGTERM)):
        if watch.look().status.state.is_final or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    return asked


def _kill(run_dir: Path, watch: RunWatch) -> None:
    """Ask a second time, which kills the workers; kill an agent that does not answer."""
    from phalanx.backends.local import LocalBackend
    from phalanx.events.status import RunState

    backend = LocalBackend()

    def has_heard() -> bool:
        look = watch.look()
        return look.status.state is RunState.STOPPING or not look.agent_alive

    # Two signals that come close together would merge into one.
    if _wait(has_heard, _ACKNOWLEDGE_S):
        backend.cancel(run_dir, signal.SIGTERM)
        if _wait(lambda: not watch.look().agent_alive, _KILLED_S):
            return
    backend.cancel(run_dir, signal.SIGKILL)


def _wait(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether the condition became true within `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _tell(run_dir: Path, watch: RunWatch, as_json: bool, *, cancelled: bool) -> None:
    from phalanx.cli.summary import to_json

    state = watch.look().status.state
    if as_json:
        print(to_json({"run": run_dir.name, "state": state.value, "cancelled": cancelled}))
    elif not cancelled:
        print(f"{run_dir.name} is not running ({state.value}): nothing to cancel")
    elif state.is_final:
        print(f"{run_dir.name}: {state.value}")
    else:
        print(f"{run_dir.name} was asked to stop ({state.value})")
