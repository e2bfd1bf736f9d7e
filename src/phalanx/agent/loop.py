"""The agent's shell: brings events to the state machine and carries out its commands. It decides nothing.

Forming a round, which may block on a shared disk or a peer, runs beside the loop under a deadline: meanwhile
a stop is heard and the end of a worker is seen. Events and logs of the run directory are written in the loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from phalanx.agent import state as machine
from phalanx.agent.guardian import Guardian
from phalanx.agent.orphans import kill_orphans
from phalanx.agent.policy import Exit, Progress
from phalanx.agent.ports import HeldPorts
from phalanx.agent.processes import Ended, Gang, log_tail
from phalanx.checkpoint import fence
from phalanx.contract import ErrorReport, ExitCode, board_file, error_file
from phalanx.errors import InfrastructureError, PhalanxError
from phalanx.events.board import SIZE_BYTES, read_board
from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog
from phalanx.plan.model import Plan
from phalanx.plan.worker import checkpoint_dir, worker_argv, worker_env, worker_log
from phalanx.rendezvous.budget import spend
from phalanx.rendezvous.round import Member, Round, form, join
from phalanx.rendezvous.store import Store

# Disk space that the agent keeps for its last words: some hundred events.
RESERVE_FILE = ".reserve"
RESERVE_BYTES = 64 * 1024
BOARD_PERIOD_S = 0.1
# A file system that does not answer for so long is down. The fence itself waits 20 s for its lock.
PREPARE_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 60.0

STOP_SIGNALS = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.TERMINATED,
}

T = TypeVar("T")


class Agent:
    """Supervises the workers of one plan until the work is done, has failed for good, or was stopped."""

    def __init__(self, plan: Plan, run_dir: Path, log: EventLog, store: Store, first_round: int) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._log = log
        self._store = store
        self._reserve = run_dir / RESERVE_FILE
        self._first_round = first_round
        self._name = socket.gethostname()
        self._gang = Gang()
        self._ports: HeldPorts | None = None
        self._lease: int | None = None
        self._fence = ""
        self._round: Round | None = None
        self._killed = False
        self._exit_code: int | None = None
        self._joining: asyncio.Task[None] | None = None
        self._seen: dict[int, Progress] = {}
        self._events: asyncio.Queue[machine.Event | BaseException] = asyncio.Queue()

    async def run(self, launcher_pipe: int | None) -> int:
        """Run to the end and return the exit code. Raises InfrastructureError when the guardian cannot start.

        `launcher_pipe` is a descriptor whose end of file says that the launcher died.
        """
        self._listen(launcher_pipe)
        kill_orphans(self._run_dir)  # of an earlier agent that was killed together with its guardian
        try:
            self._guardian = Guardian(self._run_dir)
        except OSError as error:
            raise InfrastructureError(f"the agent cannot start a process: {error}") from error
        boards = self._in_background(self._watch_boards())
        try:
            return await self._drive()
        finally:
            boards.cancel()
            if self._joining is not None:
                self._joining.cancel()
            await self._release()
            self._guardian.close()

    async def _drive(self) -> int:
        state, commands = machine.begin(self._plan.failure, self._first_round, time.monotonic())
        while True:
            for command in commands:
                await self._perform(command)
            if self._exit_code is not None:
                return self._exit_code
            state, commands = machine.step(state, await self._next_event(state.deadline_s))

    async def _next_event(self, deadline_s: float | None) -> machine.Event:
        timeout_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        try:
            event = await asyncio.wait_for(self._events.get(), timeout_s)
        except asyncio.TimeoutError:
            return machine.DeadlinePassed(time.monotonic())
        if isinstance(event, BaseException):
            raise event
        return event

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine beside the loop; what it raises ends the agent rather than being lost."""

        def done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._events.put_nowait(error)

        task = asyncio.create_task(work)
        task.add_done_callback(done)
        return task

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._events.put_nowait(context.get("exception") or RuntimeError(context["message"]))

    async def _perform(self, command: machine.Command) -> None:
        match command:
            case machine.Join():
                self._joining = self._in_background(self._join(command))
            case machine.Start():
                self._start()
            case machine.Stop():
                self._gang.terminate()
            case machine.Kill():
                self._killed = True
                self._gang.kill()
            case machine.Release():
                await self._release()
            case machine.Record(kind, number, rank, data):
                self._record(kind, number, rank, **data)
            case machine.Leave(exit_code):
                self._exit_code = exit_code

    def _record(self, kind: Kind, number: int | None, rank: int | None, **data: Any) -> None:
        """Append an event. On a full disk the reserve makes room, so that the end and its reason are told."""
        lost = self._log.lost
        self._log.append(kind, round_number=number, rank=rank, **data)
        if self._log.lost > lost:
            with suppress(OSError):  # it is used up, or the disk does worse than being full
                self._reserve.unlink()
                self._log.append(kind, round_number=number, rank=rank, **data)

    # --- what happens outside -------------------------------------------------------------------------------

    def _listen(self, launcher_pipe: int | None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._callback_failed)
        loop.add_signal_handler(signal.SIGCHLD, self._look_for_exits)
        for number, code in STOP_SIGNALS.items():
            loop.add_signal_handler(number, self._ask_to_stop, number.name, code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked since the start of the process
        if launcher_pipe is not None:
            loop.add_reader(launcher_pipe, self._read_launcher, launcher_pipe)

    def _ask_to_stop(self, by: str, exit_code: ExitCode, insist: bool = True) -> None:
        self._events.put_nowait(machine.StopRequested(time.monotonic(), by, exit_code, insist))

    def _read_launcher(self, pipe: int) -> None:
        if not os.read(pipe, 4096):
            asyncio.get_running_loop().remove_reader(pipe)
            self._ask_to_stop("the end of its launcher", ExitCode.TERMINATED, insist=False)

    def _look_for_exits(self) -> None:
        for ended in self._gang.newly_ended():
            self._events.put_nowait(machine.ProcessExited(time.monotonic(), self._exit(ended)))

    async def _watch_boards(self) -> None:
        while True:
            await asyncio.sleep(BOARD_PERIOD_S)
            for rank in self._gang.alive():
                progress = self._progress(rank)
                if progress != self._seen.get(rank):
                    self._seen[rank] = progress
                    self._events.put_nowait(machine.ProgressSeen(time.monotonic(), rank, progress))

    def _progress(self, rank: int) -> Progress:
        assert self._round is not None
        try:
            board = read_board(board_file(self._run_dir, self._round.number, rank))
        except OSError:  # a disk that fails for a moment must not end a training that goes on
            return self._seen.get(rank, Progress())
        if board is None:
            return Progress()
        return Progress(board.section, board.steps_done, board.start_step, board.target_steps, True)

    def _exit(self, ended: Ended) -> Exit:
        assert self._round is not None
        number, now = self._round.number, time.time()
        report = _report(error_file(self._run_dir, number, ended.rank))
        tail: tuple[str, ...] = ()
        if report is None and ended.exit_code != 0:
            tail = log_tail(
                worker_log(self._plan, self._run_dir, number, ended.rank), self._plan.logs.tail_lines
            )
        return Exit(
            ended.rank,
            ended.exit_code,
            min(report.time, now) if report else now,
            self._progress(ended.rank),
            report,
            self._killed,
            tail,
        )

    # --- a round --------------------------------------------------------------------------------------------

    async def _join(self, command: machine.Join) -> None:
        try:
            await self._form(command)
        except PhalanxError as error:
            failed = machine.RoundFailed(time.monotonic(), error.exit_code, error.message, error.hint)
            self._events.put_nowait(failed)

    async def _form(self, command: machine.Join) -> None:
        """Take the fence, make the files, hold the ports, meet the others. Raises PhalanxError."""
        number, size = command.number, self._plan.world_size
        try:
            self._fence = await _beside(lambda: self._prepare(number), PREPARE_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise InfrastructureError(
                f"the file system of {self._run_dir} or {checkpoint_dir(self._plan, self._run_dir)} "
                f"did not answer within {PREPARE_TIMEOUT_S:g} s"
            ) from None
        try:
            self._ports = HeldPorts(size)
        except OSError as error:
            raise InfrastructureError(f"no free port for {size} workers: {error}") from error
        self._lease = await self._store.grant(JOIN_TIMEOUT_S)
        await join(self._store, number, Member(self._name, self._ports.addresses), self._lease)
        try:
            formed = await asyncio.wait_for(form(self._store, number, size), JOIN_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise InfrastructureError(
                f"round {number} did not come together within {JOIN_TIMEOUT_S:g} s"
            ) from None
        used = 0
        if command.after_failure_of is not None:
            used = await spend(self._store, "restarts", command.after_failure_of)
        self._round, self._killed, self._seen = formed, False, {}
        self._events.put_nowait(machine.RoundFormed(time.monotonic(), formed, used))

    def _prepare(self, number: int) -> str:
        """Everything of a round that touches a disk; returns the fence's token. Runs beside the loop."""
        try:
            for rank in range(self._plan.world_size):
                worker_log(self._plan, self._run_dir, number, rank).parent.mkdir(parents=True, exist_ok=True)
                board = board_file(self._run_dir, number, rank)
                board.parent.mkdir(parents=True, exist_ok=True)
                # Real blocks: a worker that maps a hole of a full disk dies of SIGBUS.
                board.write_bytes(bytes(SIZE_BYTES))
        except OSError as error:
            raise InfrastructureError(
                f"the files of round {number} cannot be made: {error}", "free space in the run directory"
            ) from error
        return fence.take(checkpoint_dir(self._plan, self._run_dir), self._run_dir, number)

    def _start(self) -> None:
        """Start all workers; those that cannot be started count as having failed at once."""
        assert self._round is not None
        number, trouble = self._round.number, ""
        for worker in self._plan.workers:
            log = worker_log(self._plan, self._run_dir, number, worker.rank)
            env = worker_env(
                self._plan, self._run_dir, number, worker, self._round.addresses, self._fence, os.environ
            )
            try:
                if not trouble:
                    argv = worker_argv(self._plan, sys.executable)
                    pid = self._gang.start(worker.rank, argv, env, self._plan.working_dir, log)
                    self._guardian.watch(pid)
                    self._record(Kind.WORKER_STARTED, number, worker.rank, pid=pid, log=str(log))
                    continue
            except OSError as error:
                trouble = f"rank {worker.rank} cannot be started: {error}"
            self._events.put_nowait(
                machine.ProcessExited(time.monotonic(), _not_started(worker.rank, number, trouble))
            )

    async def _release(self) -> None:
        for group in self._gang.release():
            self._guardian.forget(group)
        if self._round is not None:
            kill_orphans(self._run_dir)
        if self._ports is not None:
            self._ports.close()
        if self._lease is not None:
            await self._store.revoke(self._lease)
        self._ports = self._lease = self._round = None


def _report(path: Path) -> ErrorReport | None:
    """The worker's own report; None when it left none that can be read: it may have died while writing."""
    try:
        return ErrorReport.read(path)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _not_started(rank: int, number: int, why: str) -> Exit:
    code = int(ExitCode.INFRASTRUCTURE)
    report = ErrorReport(rank, number, time.time(), code, "setup", 0, "", why, "", ())
    return Exit(rank, code, report.time, report=report)


async def _beside(work: Callable[[], T], timeout_s: float) -> T:
    """Run blocking work in a thread that dies with the process. Raises what it raises, and TimeoutError."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if done.done():  # nobody waits any more
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only if T allows it

    def target() -> None:
        try:
            result, error = work(), None
        except Exception as raised:  # noqa: BLE001  # it is raised again in the loop's thread
            result, error = None, raised
        loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=target, daemon=True).start()
    return await asyncio.wait_for(done, timeout_s)
