"""The error tree. Every error that Phalanx raises on purpose is one of these.

    PhalanxError
    ├── UsageError            2   the command line is wrong, or names a run that does not exist
    ├── SpecError             2   the job file is wrong; carries every problem found in it
    ├── CheckpointError      83   a checkpoint could not be written or read
    │   ├── CheckpointMismatchError 93   it belongs to another model: a restart cannot help
    │   ├── CheckpointBusyError     2   another live run owns the directory
    │   └── FencedError            80   this writer's round is over; it must not commit
    ├── IncompatibleError    93   a setting, model or library version that cannot work: a restart cannot help
    └── InfrastructureError  84   the machine failed, not the user: no port, no process, no memory

A class carries its exit code (`phalanx.contract.ExitCode` holds the same numbers with their meaning) and
an optional hint: the one thing to do next. This module imports nothing from Phalanx.
"""

from __future__ import annotations


class PhalanxError(Exception):
    """Base of all errors that are shown to a person as a message, never as a traceback.

    `message` says what is wrong, `hint` what would be right or what to do next.
    """

    exit_code = 84

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(PhalanxError):
    """The command line is wrong, or names something that does not exist."""

    exit_code = 2


class SpecError(PhalanxError):
    """A file that the user wrote is wrong. The message lists every problem with its place."""

    exit_code = 2


class CheckpointError(PhalanxError):
    """A checkpoint could not be written or read."""

    exit_code = 83


class CheckpointMismatchError(CheckpointError):
    """The checkpoint was written for a different model, so no restart can help."""

    exit_code = 93


class CheckpointBusyError(CheckpointError):
    """Another run that is alive owns this checkpoint directory."""

    exit_code = 2


class FencedError(CheckpointError):
    """The round of this writer is over; what it holds must not be committed."""

    exit_code = 80


class IncompatibleError(PhalanxError):
    """A setting, a model or a library version that cannot work, so no restart can help."""

    exit_code = 93


class InfrastructureError(PhalanxError):
    """The machine failed, not the user: no port, no process, no memory."""

    exit_code = 84
