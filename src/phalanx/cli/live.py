"""The live view of a run in a terminal. `render` is pure: a status in, a Rich renderable out."""

from __future__ import annotations

import sys
import termios
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from phalanx.cli import wording
from phalanx.cli.summary import steps_text
from phalanx.cli.view import in_foreground
from phalanx.events.kinds import Event, Kind
from phalanx.events.status import RankStatus, RunState, RunStatus

_STATE_STYLES = {
    RunState.STARTING: "cyan",
    RunState.RUNNING: "green",
    RunState.RESTARTING: "yellow",
    RunState.STOPPING: "yellow",
    RunState.SUCCEEDED: "bold green",
    RunState.FAILED: "bold red",
    RunState.STOPPED: "bold yellow",
    RunState.LOST: "bold red",
}
_LAST_EVENTS, _LOW_EVENTS = 5, 2
_LOW_LINES = 24
# Lines of the table that are no rank: blank, headings, rule, "and 50 more", blank.
_TABLE_LINES = 5
# Below these widths the table leaves out what a person needs least.
_WIDE, _MEDIUM = 56, 46


class LiveView:
    """Redraws the picture on a terminal."""

    def __init__(self, run_id: str, console: Console) -> None:
        self._run_id = run_id
        self._console = console
        self._events: deque[Event] = deque(maxlen=_LAST_EVENTS)
        self._terminal = _hide_control_characters()
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def update(self, status: RunStatus, events: Iterable[Event]) -> None:
        """Draw the status and the last events."""
        self._events.extend(event for event in events if event.kind is not Kind.PROGRESS)
        width, height = self._console.size
        picture = render(self._run_id, status, tuple(self._events), width=width, height=height)
        self._live.update(picture, refresh=True)

    def close(self) -> None:
        """Leave the last picture where it is."""
        try:
            self._live.stop()
        finally:
            if self._terminal is not None and in_foreground(sys.stdin):
                with suppress(termios.error):  # it is gone
                    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)


def _hide_control_characters() -> list[Any] | None:
    """Keep the `^C` that a terminal echoes out of the picture; returns the settings to give back."""
    if not in_foreground(sys.stdin):
        return None
    before = termios.tcgetattr(sys.stdin)
    without = list(before)
    without[3] &= ~termios.ECHOCTL  # local modes
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, without)
    return before


def render(
    run_id: str, status: RunStatus, events: Sequence[Event], *, width: int, height: int = 40
) -> RenderableType:
    """The picture of a run for a terminal of `width` columns and `height` lines."""
    facts = list(_facts(status))
    shown = events[-(_LAST_EVENTS if height >= _LOW_LINES else _LOW_EVENTS) :]
    parts: list[RenderableType] = [_headline(run_id, status)]
    if status.step is not None and status.target_steps:
        parts.append(_bar(status, width))
    if status.ranks:
        other_lines = len(parts) + _TABLE_LINES + len(facts) + 1 + len(shown)
        parts.append(_ranks(status, width, max_rows=max(2, height - 1 - other_lines)))
    parts += [_line(text, style) for text, style in facts]
    if shown:
        parts.append(Text(""))
        parts += [
            _line(f"{wording.clock(event.time)}  {wording.event_line(event)}", "dim") for event in shown
        ]
    return Group(*parts)


def _line(text: str, style: str = "") -> Text:
    """One line of the screen, cut at its edge: a wrapped line would make the picture jump."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _headline(run_id: str, status: RunStatus) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(status.state.value, style=_STATE_STYLES[status.state])
    text.append(f"  {run_id}", style="bold")
    if status.elapsed_s is not None:
        text.append(f"  {wording.duration(status.elapsed_s)}", style="dim")
    return text


def _bar(status: RunStatus, width: int) -> RenderableType:
    """Steps done of all steps, with loss, rate and time to go where there is room."""
    told = steps_text(status)
    for fact in _pace(status):
        if len(told) + 2 + len(fact) <= width:
            told += f"  {fact}"
    room = width - len(told) - 3
    if room < 8:
        return _line(told)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=min(40, room))
    grid.add_column(no_wrap=True)
    grid.add_row(
        ProgressBar(total=status.target_steps, completed=status.step or 0, width=min(40, room)), told
    )
    return grid


def _pace(status: RunStatus) -> Iterable[str]:
    """The most wanted first."""
    if status.eta_s is not None:
        yield f"{wording.duration(status.eta_s)} to go"
    if status.loss is not None:
        yield f"loss {wording.number(status.loss)}"
    if status.examples_per_s is not None:
        yield wording.rate(status.examples_per_s)


def _ranks(status: RunStatus, width: int, max_rows: int) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading in ("rank", "section", "step"):
        table.add_column(heading, no_wrap=True)
    if width >= _MEDIUM:
        table.add_column("for", no_wrap=True)
        table.add_column("loss", no_wrap=True)
    if width >= _WIDE:
        table.add_column("pid", no_wrap=True)
    shown = status.ranks if len(status.ranks) <= max_rows else status.ranks[: max_rows - 1]
    for rank in shown:
        table.add_row(*_cells(rank, status, width), style=_rank_style(rank))
    hidden = status.ranks[len(shown) :]
    if not hidden:
        return table
    sections = Counter("ended" if rank.exit_code is not None else rank.section for rank in hidden)
    told = ", ".join(f"{count} {section}" for section, count in sections.most_common())
    return Group(table, _line(f"and {len(hidden)} more: {told}", "dim"))


def _cells(rank: RankStatus, status: RunStatus, width: int) -> list[str]:
    section = rank.section if rank.exit_code is None else f"exit {rank.exit_code}"
    cells = [str(rank.rank), section, "-" if status.step is None else str(rank.step)]
    if width >= _MEDIUM:
        cells += [wording.duration(rank.section_s), wording.number(rank.loss)]
    if width >= _WIDE:
        cells.append("-" if rank.pid is None else str(rank.pid))
    return cells


def _rank_style(rank: RankStatus) -> str:
    if rank.exit_code is None:
        return ""
    return "dim" if rank.exit_code == 0 else "red"


def _facts(status: RunStatus) -> Iterable[tuple[str, str]]:
    """One line each on rounds, the last failure and the last checkpoint."""
    if status.round:
        left = "" if status.restarts_left is None else f", {status.restarts_left} left"
        yield f"round {status.round}  {wording.many(status.restarts_used, 'restart')}{left}", ""
    if status.failure is not None and not status.state.is_final:
        when = wording.clock(status.failure.time)
        yield f"last failure at {when}: {wording.one_line(status.failure.summary)}", "yellow"
        if status.recovery_s is not None:
            yield f"training went on {wording.duration(status.recovery_s)} after it", "green"
    if status.checkpoint is not None:
        yield f"checkpoint of step {status.checkpoint.step} at {wording.clock(status.checkpoint.time)}", ""
    if status.evaluated:
        yield f"evaluated: {wording.metrics(status.evaluated)}", ""
