"""The `phalanx` command: gathers the commands, shows errors as messages, and turns them into exit codes."""

from __future__ import annotations

import sys

import typer

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


def main() -> None:
    """Run the command line; the process ends with a code of `phalanx.contract.ExitCode`."""
    try:
        app()
    except PhalanxError as error:
        print(f"phalanx: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
