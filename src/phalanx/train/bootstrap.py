"""What every worker process runs: `bootstrap script PATH ARGS` or `bootstrap function MODULE:NAME ARGS`.

It runs the user's program as if Python had been asked to, writes down why it failed, and leaves with an exit
code of the table. Standard library only: it must start a program that uses neither Phalanx nor TensorFlow.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, cast

from phalanx.contract import AGENT_PID_ENV, ErrorReport, ExitCode, WorkerEnv, board_file, error_file
from phalanx.errors import PhalanxError, UsageError
from phalanx.events.board import read_board

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# The agent repeats a report in its events, also on a full disk out of the 64 KiB that it keeps for them.
_REPORTED_LINES, _REPORTED_COLUMNS, _REPORTED_CHARACTERS = 30, 500, 4000

# How TensorFlow says that a peer went away. Names, because TensorFlow may never have been imported here.
_TENSORFLOW_ERRORS = "tensorflow.python.framework.errors_impl"
_PEER_LOST_ERRORS = ("UnavailableError", "AbortedError", "CancelledError")
_PEER_LOST_WORDS = (
    "Socket closed",
    "Connection reset by peer",
    "Connection refused",
    "Collective ops is aborted",
    "Collective has timed out",
    "unhealthy",
)
_PORT_WORDS = "Could not start gRPC server"


def main() -> NoReturn:
    """Run the program named on the command line, and leave."""
    _die_with_agent()
    faulthandler.enable()
    kind, target, *args = sys.argv[1:]
    try:
        run_program(kind, target, args)
    except SystemExit as left:
        _leave(_system_exit_code(left))
    except KeyboardInterrupt:
        traceback.print_exc()
        _leave(ExitCode.INTERRUPTED)
    except BaseException as error:  # noqa: BLE001  # whatever ends the program is reported to the agent
        _leave(_report(error))
    _leave(ExitCode.SUCCESS)


def run_program(kind: str, target: str, args: list[str]) -> None:
    """Run a script as `__main__`, or import a module and call its function without arguments."""
    working_dir = os.getcwd()
    if sys.path and sys.path[0] in ("", working_dir):  # put there by `python -m`
        del sys.path[0]
    if kind == "script":
        sys.argv = [target, *args]
        sys.path.insert(0, str(Path(target).resolve().parent))
        runpy.run_path(target, run_name="__main__")
        return
    sys.path.insert(0, working_dir)
    sys.argv = [target, *args]
    _function(target)()


def _function(target: str) -> Callable[[], object]:
    """Import what "module:function" names. Raises UsageError when it is not there."""
    module, _, name = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there and imports something that is not
        raise UsageError(
            f"entrypoint {target!r}: there is no module {error.name!r}",
            f"modules are looked for in the working directory, {os.getcwd()}, and among what is installed",
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"entrypoint {target!r}: {getattr(found, '__name__', found)!r} has no {part!r}")
        found = getattr(found, part)
    return cast("Callable[[], object]", found)


def exit_code_for(error: BaseException) -> int:
    """The exit code of the table for an exception that ended the program, looking at what caused it too."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, PhalanxError):
            return link.exit_code
        if type(link).__module__ == _TENSORFLOW_ERRORS:
            if _PORT_WORDS in str(link):
                return ExitCode.INFRASTRUCTURE
            if type(link).__name__ in _PEER_LOST_ERRORS or any(
                word in str(link) for word in _PEER_LOST_WORDS
            ):
                return ExitCode.PEER_LOST
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return ExitCode.USER_ERROR


def _die_with_agent() -> None:
    """Ask the kernel for SIGKILL when the agent dies; leave at once when it already did."""
    agent = os.environ.pop(AGENT_PID_ENV, None)
    if agent is None:
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.stderr.write(f"phalanx: no PR_SET_PDEATHSIG: {os.strerror(ctypes.get_errno())}\n")
    if os.getppid() != int(agent):
        os._exit(ExitCode.PEER_LOST)


def _report(error: BaseException) -> int:
    """Write the error report, print what Python would print, and return the exit code."""
    code = exit_code_for(error)
    expected = isinstance(error, PhalanxError)
    error.with_traceback(_of_user(error.__traceback__))
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    try:
        told = () if expected else tuple(line[:_REPORTED_COLUMNS] for line in lines[-_REPORTED_LINES:])
        _write_report(error, code, told)
    except (OSError, ValueError, KeyError) as trouble:
        sys.stderr.write(f"phalanx: the error report cannot be written: {trouble}\n")
    if expected:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    return code


def _write_report(error: BaseException, code: int, lines: tuple[str, ...]) -> None:
    """Tell the agent why this worker failed. Raises OSError, and what `WorkerEnv.from_env` raises."""
    worker = WorkerEnv.from_env(os.environ)
    if worker is None:
        return
    run_dir = Path(worker.run_dir)
    message, hint = _words(error, code)
    board = read_board(board_file(run_dir, worker.round, worker.rank))
    ErrorReport(
        rank=worker.rank,
        round=worker.round,
        time=time.time(),
        exit_code=code,
        section=board.section if board else "setup",
        step=board.steps_done if board else 0,
        exception=f"{type(error).__module__}.{type(error).__qualname__}",
        message=message[:_REPORTED_CHARACTERS],
        hint=hint,
        traceback=lines,
    ).write(error_file(run_dir, worker.round, worker.rank))


def _words(error: BaseException, code: int) -> tuple[str, str]:
    """Message and hint for an exception; TensorFlow does not say which port it could not have."""
    if isinstance(error, PhalanxError):
        return error.message, error.hint
    if code == ExitCode.INFRASTRUCTURE and _PORT_WORDS in str(error):
        task = json.loads(os.environ["TF_CONFIG"])
        address = task["cluster"]["worker"][task["task"]["index"]]
        return (
            f"{error}: port {address} of this rank is taken",
            f"the log names what refused it; `ss -ltnp` shows who listens on {address}",
        )
    return str(error), ""


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the user's program."""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if (
            name not in (__file__, runpy.__file__)
            and not name.startswith("<frozen ")
            and name != importlib.__file__
        ):
            return trace
        trace = trace.tb_next
    return None


def _system_exit_code(left: SystemExit) -> int:
    """What Python does with the argument of sys.exit: None is 0, a number is itself, all else is printed."""
    if left.code is None:
        return 0
    if isinstance(left.code, int):
        return left.code & 0xFF
    sys.stderr.write(f"{left.code}\n")
    return int(ExitCode.USER_ERROR)


def _leave(code: int) -> NoReturn:
    """Leave with `code`.

    By os._exit after a failure, and whenever phalanx.train was used: the end of the interpreter may hang
    after a collective was aborted. On success this waits for the threads that Python would have waited for.
    """
    succeeded = code == ExitCode.SUCCESS
    if succeeded and "phalanx.train.context" not in sys.modules:
        sys.exit(0)
    if succeeded:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the log's disk is full, or the program closed it
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
