"""A run in the foreground: starts its agent, shows how it goes, passes signals on, and tells how it ended.

It decides nothing about the run: the agent does. When this process dies, the agent stops the run by itself.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.backends.base import RunningAgent
from phalanx.backends.local import LocalBackend
from phalanx.cli.stopping import StopRelay
from phalanx.cli.summary import document, summary, to_json
from phalanx.cli.view import NoView, PlainView, View, in_foreground
from phalanx.cli.watch import Look, RunWatch
from phalanx.contract import AGENT_LOG, EVENTS_FILE, ExitCode
from phalanx.errors import InfrastructureError, PhalanxError
from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog
from phalanx.events.status import RunState
from phalanx.plan.model import Plan

_TICK_S = 0.1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGENT_KILL_WAIT_S = 10.0


def supervise(run_dir: Path, plan: Plan, *, plain: bool, as_json: bool) -> int:
    """Run `plan` in `run_dir` to its end and return the exit code of the table.

    Raises PhalanxError with the agent's own message and code when nothing could be started.
    """
    relay = StopRelay(plan.failure.grace_s, time.monotonic())
    launch = _Launch(run_dir, plan, _choose_view(run_dir.name, plain, as_json), relay)
    with _signals_to(relay):  # to the last word: a reader that is gone must not change the exit code
        look = launch.follow()
        return launch.tell(look, as_json)


class _Launch:
    """One life of an agent, seen from the process that starts it."""

    def __init__(self, run_dir: Path, plan: Plan, view: View, relay: StopRelay) -> None:
        self._run_dir = run_dir
        self._plan = plan
        self._view = view
        self._relay = relay
        self._exit_code: int | None = None
        self._watch = RunWatch(run_dir, lambda: self._exit_code is None)
        self._watch.look()  # the earlier lives of a resumed run
        self._spoke = False
        self._rounds = 0
        self._stops_seen = 0

    def follow(self) -> Look:
        """Start the agent and show the run until it has ended; returns the last look."""
        backend = LocalBackend()
        self._agent: RunningAgent = backend.submit(backend.render(self._plan, self._run_dir))
        try:
            while True:
                self._exit_code = self._agent.wait(_TICK_S)
                try:
                    look = self._watch.look()
                except InfrastructureError:  # a shared disk out of reach: the agent may live through it
                    if self._exit_code is not None:
                        raise
                else:
                    self._take_in(look)
                    self._show(look)
                    if self._exit_code is not None:
                        return look
                self._pass_signals_on()
        finally:
            self._leave_screen()

    def tell(self, look: Look, as_json: bool) -> int:
        """Print how the run ended and return its exit code. Raises PhalanxError when it never began."""
        assert self._exit_code is not None
        if not self._spoke:
            raise _unstarted(self._run_dir, self._exit_code)
        if look.status.state is RunState.LOST:
            if not self._run_dir.exists():
                raise InfrastructureError(
                    f"the run directory {self._run_dir} was deleted, and the run ended with it",
                    "start the job anew with `phalanx run`",
                )
            look = self._record_loss()
        status = look.status
        code = self._exit_code if status.exit_code is None else status.exit_code
        if not self._rounds and status.state is RunState.FAILED and not as_json:
            error = PhalanxError(status.reason, status.hint)
            error.exit_code = code
            raise error
        try:
            print(self._report(look, as_json), flush=True)
        except OSError:  # nobody is there to read it
            _silence_stdout()
        return code

    def _report(self, look: Look, as_json: bool) -> str:
        where = self._watch.checkpoint_dir
        if as_json:
            problems = self._watch.problems
            data = document(
                self._run_dir, look.status, agent_alive=False, checkpoint_dir=where, problems=problems
            )
            return to_json(data, indent=2)
        return summary(self._run_dir.name, look.status, where, detail_lines=self._plan.logs.tail_lines)

    def _take_in(self, look: Look) -> None:
        for event in look.events:
            if event.kind is Kind.RUN_STARTED:
                self._spoke = True
            elif event.kind is Kind.ROUND_STARTED:
                self._rounds += 1
            elif event.kind is Kind.STOP_REQUESTED:
                self._stops_seen += 1

    def _show(self, look: Look) -> None:
        if not self._spoke:  # a resumed run still looks as it ended
            return
        try:
            self._view.update(look.status, look.events)
        except (
            OSError
        ):  # the terminal or the reader of the pipe is gone: the run matters more than its picture
            self._view = NoView()
            _silence_stdout()

    def _leave_screen(self) -> None:
        try:
            self._view.close()
        except OSError:
            _silence_stdout()

    def _pass_signals_on(self) -> None:
        now = time.monotonic()
        signum = self._relay.due(now, agent_ready=self._spoke, acknowledged=self._stops_seen)
        if signum is not None:
            self._agent.signal(signum)
        if self._relay.is_overdue(now):
            self._agent.signal(signal.SIGKILL)  # its workers die with it
            self._exit_code = self._agent.wait(_AGENT_KILL_WAIT_S)
            if self._exit_code is None:
                raise InfrastructureError(
                    f"the agent (pid {self._agent.pid}) hangs and cannot be killed",
                    "look at the disks it uses: a dead network file system holds processes like this",
                )

    def _record_loss(self) -> Look:
        """Add to the record that the agent died, which it could not do itself."""
        assert self._exit_code is not None
        how = f"was killed by {_signal_name(self._exit_code - 128)}" if self._exit_code > 128 else "ended"
        message = f"the agent (pid {self._agent.pid}) {how} without ending the run; its workers are killed"
        try:
            log = EventLog(self._run_dir / EVENTS_FILE)
        except OSError:  # the summary says it all the same
            return self._watch.look()
        log.append(Kind.AGENT_LOST, message=message)
        log.close()
        return self._watch.look()


@contextmanager
def _signals_to(relay: StopRelay) -> Iterator[None]:
    """Collect requests to stop in `relay` instead of dying of them, and outlive a reader that goes away."""
    earlier = {
        signum: signal.signal(signum, lambda number, _: relay.request(number, time.monotonic()))
        for signum in _STOP_SIGNALS
    }
    earlier[signal.SIGPIPE] = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        for signum, handler in earlier.items():
            signal.signal(signum, handler)


def _choose_view(run_id: str, plain: bool, as_json: bool) -> View:
    if as_json:
        return NoView()
    if not plain and in_foreground(sys.stdout):
        from rich.console import Console

        from phalanx.cli.live import LiveView

        console = Console(highlight=False)
        if not console.is_dumb_terminal:
            return LiveView(run_id, console)
    return PlainView(run_id, lambda line: print(line, flush=True))


def _unstarted(run_dir: Path, exit_code: int) -> PhalanxError:
    """What the agent said before it could write events."""
    path = run_dir / AGENT_LOG
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    prefix = "phalanx agent: "
    said = [number for number, line in enumerate(lines) if line.startswith(prefix)]
    if not said:
        return InfrastructureError(f"the agent ended before it began (exit code {exit_code})", f"see {path}")
    error = PhalanxError("\n".join([lines[said[-1]].removeprefix(prefix), *lines[said[-1] + 1 :]]))
    error.exit_code = exit_code if exit_code in ExitCode.__members__.values() else ExitCode.INFRASTRUCTURE
    return error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _silence_stdout() -> None:
    """Nobody reads it any more: what is still buffered must not fail at the interpreter's end."""
    sys.stdout = open("/dev/null", "w")  # noqa: SIM115  # lives as long as the process
