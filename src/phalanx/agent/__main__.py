"""`python -m phalanx.agent RUN_DIR`: the process that supervises the workers of one run on this node.

It owns the run's lock, and its exit code is the run's. What is wrong before that, it says on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import socket
import stat
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from phalanx.agent.loop import RESERVE_BYTES, RESERVE_FILE, STOP_SIGNALS, Agent
from phalanx.agent.preflight import check_entrypoint, check_logs
from phalanx.contract import AGENT_FILE, AGENT_LOCK, EVENTS_FILE, HOME_ENV, PLAN_FILE, ExitCode
from phalanx.errors import InfrastructureError, PhalanxError, UsageError
from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog, EventReader
from phalanx.plan.model import Plan
from phalanx.rendezvous.memory import MemoryStore

# `phalanx status` holds the lock shared for a moment to see whether an agent lives.
_LOCK_TRIES, _LOCK_PAUSE_S = 20, 0.05


def main(argv: list[str] | None = None) -> int:
    """Supervise the run in RUN_DIR and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m phalanx.agent", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="directory with a plan.json")
    parser.add_argument(
        "--launcher-pipe", action="store_true", help="standard input is a pipe whose end stops the run"
    )
    options = parser.parse_args(argv)
    # Until the loop listens a stop waits; dying of it here would leave a run without an end in its record.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        run_dir = options.run_dir.resolve()
        plan = _read_plan(run_dir)
        pipe = _launcher_pipe() if options.launcher_pipe else None
        lock = _take_lock(run_dir)
        try:
            return _supervise(plan, run_dir, pipe)
        finally:
            os.close(lock)
    except PhalanxError as error:
        sys.stderr.write(f"phalanx agent: {error}\n")
        return error.exit_code


def _supervise(plan: Plan, run_dir: Path, pipe: int | None) -> int:
    """Run with the lock held: whatever goes wrong from here on is also told in the run's events."""
    try:
        _say_who(run_dir)  # first: until then whoever sees the lock finds the number of an earlier agent
        earlier = list(EventReader(run_dir / EVENTS_FILE).read_new())
        log = EventLog(run_dir / EVENTS_FILE)
        (run_dir / RESERVE_FILE).write_bytes(bytes(RESERVE_BYTES))
    except OSError as error:
        raise InfrastructureError(f"the run directory {run_dir} cannot be written: {error}") from error
    started = time.monotonic()
    resumed = any(event.kind is Kind.RUN_STARTED for event in earlier)
    log.append(Kind.RUN_STARTED, job=plan.job, workers=plan.world_size, resumed=resumed, pid=os.getpid())
    first_round = max((event.round or 0 for event in earlier), default=0) + 1
    try:
        check_entrypoint(plan)
        check_logs(plan, run_dir)
        agent = Agent(plan, run_dir, log, MemoryStore(), first_round)
        return asyncio.run(agent.run(pipe))
    except Exception as error:  # also a bug of the agent must end the run in its record
        code = error.exit_code if isinstance(error, PhalanxError) else int(ExitCode.INFRASTRUCTURE)
        reason = error.message if isinstance(error, PhalanxError) else f"the agent failed: {error!r}"
        _free_reserve(run_dir)
        log.append(
            Kind.RUN_FINISHED,
            state="failed",
            exit_code=code,
            reason=reason,
            seconds=round(time.monotonic() - started, 3),
            hint=error.hint
            if isinstance(error, PhalanxError)
            else f"please report this; see {run_dir}/agent.log",
        )
        if isinstance(error, PhalanxError):
            raise
        traceback.print_exc()
        return code
    finally:
        log.close()
        _free_reserve(run_dir)


def _free_reserve(run_dir: Path) -> None:
    """Make room on a full disk; a disk that does worse must not hide how the run ended."""
    with suppress(OSError):
        (run_dir / RESERVE_FILE).unlink(missing_ok=True)


def _read_plan(run_dir: Path) -> Plan:
    path = run_dir / PLAN_FILE
    try:
        return Plan.from_json(path.read_text())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "RUN_DIR is made by `phalanx run`"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no plan of this version of Phalanx: {error!r}") from error


def _launcher_pipe() -> int:
    """The descriptor of standard input. Raises UsageError when it cannot tell that a launcher died."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        mode = 0
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise UsageError("--launcher-pipe needs a pipe as standard input")
    return 0


def _take_lock(run_dir: Path) -> int:
    """Hold the run's lock until the descriptor is closed.

    Raises UsageError when another agent holds it, InfrastructureError when the file system has no locks.
    """
    try:
        fd = os.open(run_dir / AGENT_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InfrastructureError(
            f"the run directory {run_dir} cannot be written: {error.strerror}"
        ) from error
    for _ in range(_LOCK_TRIES):
        if _try_lock(fd, run_dir):
            return fd
        time.sleep(_LOCK_PAUSE_S)
    os.close(fd)
    raise UsageError(
        f"another agent supervises {run_dir}", "`phalanx status` shows it, `phalanx cancel` stops it"
    )


def _try_lock(fd: int, run_dir: Path) -> bool:
    """Whether the lock is ours now. Raises InfrastructureError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InfrastructureError(
            f"{run_dir} cannot be locked: {error.strerror}",
            f"{HOME_ENV} must name a directory on a file system that has flock",
        ) from error
    return True


def _say_who(run_dir: Path) -> None:
    """Write agent.json by rename: it is read while it is written."""
    who = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.time()}
    part = run_dir / f"{AGENT_FILE}.part"
    part.write_text(json.dumps(who))
    part.replace(run_dir / AGENT_FILE)


if __name__ == "__main__":
    sys.exit(main())
