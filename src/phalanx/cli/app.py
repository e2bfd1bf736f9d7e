"""The `phalanx` command: gathers the commands, shows errors as messages, and turns them into exit codes.

A command is one file here with one function of its name. What is heavy (pydantic, YAML, Rich, a backend) is
imported inside that function, so that `phalanx --help` stays quick.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from phalanx import __version__
from phalanx.cli import cancel, events, init, logs, plan, resume, run, schema, status
from phalanx.cli import list as list_
from phalanx.contract import ExitCode
from phalanx.errors import PhalanxError

app = typer.Typer(
    name="phalanx",
    help="Synchronous TensorFlow training that keeps its ranks closed when one falls.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("list")(list_.list_runs)
app.command("logs")(logs.logs)
app.command("events")(events.events)
app.command("cancel")(cancel.cancel)
app.command("resume")(resume.resume)
app.command("plan")(plan.plan)
app.command("init")(init.init)
app.command("schema")(schema.schema)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"phalanx {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Synchronous TensorFlow training that keeps its ranks closed when one falls."""


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code, one of `phalanx.contract.ExitCode`."""
    try:
        code = _run(arguments)
        if sys.stdout is not None:  # it is when the shell closed it (`>&-`)
            sys.stdout.flush()
    except PhalanxError as error:
        print(f"phalanx: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:  # the output goes to a full disk, a directory cannot be read
        if _is_current_directory_gone():
            print("phalanx: the current directory was deleted\n  hint: cd to another one", file=sys.stderr)
            return ExitCode.USAGE
        print(f"phalanx: {error}", file=sys.stderr)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # not written again at exit
        return ExitCode.INFRASTRUCTURE
    return code


def _is_current_directory_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _run(arguments: Sequence[str]) -> int:
    try:
        app(list(arguments), prog_name="phalanx")
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else ExitCode.SUCCESS
    return ExitCode.SUCCESS


def main() -> None:
    """The console script."""
    # A reader that goes away (`phalanx schema | head`) ends us as it ends any other program: silently.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A worker's message may hold what the terminal's encoding does not have.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(invoke(sys.argv[1:]))
