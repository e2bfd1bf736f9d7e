"""`phalanx logs`: what the workers of a run printed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.status import RunArgument

if TYPE_CHECKING:
    from phalanx.events.status import RunStatus

_POLL_S = 0.2
_CHUNK_BYTES = 1 << 20


def logs(
    run: RunArgument = None,
    rank: Annotated[int | None, typer.Option("-r", "--rank", min=0, help="Only this rank.")] = None,
    round_: Annotated[
        str, typer.Option("--round", metavar="N|all", help="Which round.", show_default="the last")
    ] = "",
    tail: Annotated[
        int | None, typer.Option("-n", "--tail", min=0, help="Only the last lines of each file.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on, also into new rounds, until the run ends.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help='Print each line as {"rank": R, "round": N, "line": "..."}.')
    ] = False,
) -> None:
    """Show what the workers printed: the last round, every rank, one after the other.

    Lines carry the rank (and the round) when there is more than one.
    """
    from phalanx.cli import runs
    from phalanx.cli.watch import RunWatch

    wanted = _Wanted(rank, _round_number(round_))
    run_dir = runs.find(run)
    watch = RunWatch(run_dir)
    look = watch.look()
    files = wanted.files(look.status)
    if not files and not follow:
        raise _nothing(run_dir.name, wanted, look.status)
    printer = _Printer(as_json, with_rank=rank is None, with_round=round_ == "all" or follow)
    readers = {place: LogReader(path) for place, path in files.items()}
    for place, reader in readers.items():
        printer.print(place, reader.read_tail(tail) if tail is not None else reader.read_new())
    while follow and not look.status.state.is_final:
        time.sleep(_POLL_S)
        look = watch.look()
        for place, path in wanted.files(look.status).items():
            readers.setdefault(place, LogReader(path))
        for place, reader in readers.items():
            printer.print(place, reader.read_new())
    for place, reader in readers.items():
        printer.print(place, reader.read_rest())


@dataclass(frozen=True)
class _Wanted:
    """Which logs the command line asks for: `round_number` is None for all, -1 for the last."""

    rank: int | None
    round_number: int | None

    def files(self, status: RunStatus) -> dict[tuple[int, int], Path]:
        """(round, rank) -> log file, in order."""
        last = max((number for number, _ in status.logs), default=0)
        asked = last if self.round_number == -1 else self.round_number
        return {
            (number, rank): Path(path)
            for (number, rank), path in sorted(status.logs.items())
            if asked in (None, number) and self.rank in (None, rank)
        }


class LogReader:
    """Reads a log that may still grow, whole lines at a time; a file that is gone has no lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._part = b""

    def read_tail(self, count: int) -> list[str]:
        """The last `count` lines so far."""
        return list(deque(self.read_new(), maxlen=count))

    def read_new(self) -> Iterator[str]:
        """Lines that are complete by now and were not read before."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_CHUNK_BYTES):
                    self._offset += len(chunk)
                    *lines, self._part = (self._part + chunk).split(b"\n")
                    yield from (line.decode(errors="replace") for line in lines)
        except FileNotFoundError:
            return

    def read_rest(self) -> Iterator[str]:
        """What is new, and at last the line that nobody ended."""
        yield from self.read_new()
        if self._part:
            yield self._part.decode(errors="replace")
            self._part = b""


class _Printer:
    """Prints lines of logs with what is needed to tell them apart."""

    def __init__(self, as_json: bool, with_rank: bool, with_round: bool) -> None:
        self._as_json = as_json
        self._with_rank = with_rank
        self._with_round = with_round

    def print(self, place: tuple[int, int], lines: Iterator[str] | list[str]) -> None:
        """Print the lines of the log of (round, rank)."""
        number, rank = place
        if self._as_json:
            from phalanx.cli.summary import to_json

            for line in lines:
                print(to_json({"rank": rank, "round": number, "line": line}), flush=True)
            return
        shown = [f"rank {rank}"] if self._with_rank else []
        shown += [f"round {number}"] if self._with_round else []
        prefix = f"[{' '.join(shown)}] " if shown else ""
        for line in lines:
            print(f"{prefix}{line}", flush=True)


def _round_number(text: str) -> int | None:
    """The meaning of `--round`. Raises UsageError."""
    if text in ("", "all"):
        return None if text else -1
    if text.isdecimal() and int(text) > 0:
        return int(text)
    from phalanx.errors import UsageError

    raise UsageError(f"--round {text!r} is no round", "give a number from 1 on, or `all`")


def _nothing(run_id: str, wanted: _Wanted, status: RunStatus) -> Exception:
    from phalanx.errors import UsageError

    if not status.logs:
        return UsageError(f"no worker of {run_id} was ever started", f"`phalanx status {run_id}` says why")
    rounds = sorted({number for number, _ in status.logs})
    ranks = sorted({rank for _, rank in status.logs})
    return UsageError(
        f"{run_id} has no such log",
        f"it has rounds {rounds[0]} to {rounds[-1]} and ranks {ranks[0]} to {ranks[-1]}",
    )
