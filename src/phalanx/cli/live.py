"""The live view of a run in a terminal. `render` is pure: a status in, a Rich renderable out."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from phalanx.cli import wording
from phalanx.cli.summary import steps_text
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
_LAST_EVENTS = 5
# Lines of the view besides the rows of the ranks and the events.
_OTHER_LINES = 10
# Below these widths the table leaves out what a person needs least.
_WIDE, _MEDIUM = 72, 52


class LiveView:
    """Redraws the picture on a terminal."""

    def __init__(self, run_id: str, console: Console) -> None:
        self._run_id = run_id
        self._console = console
        self._events: deque[Event] = deque(maxlen=_LAST_EVENTS)
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
        self._live.stop()


def render(
    run_id: str, status: RunStatus, events: Sequence[Event], *, width: int, height: int = 40
) -> RenderableType:
    """The picture of a run for a terminal of `width` columns and `height` lines."""
    parts: list[RenderableType] = [_headline(run_id, status)]
    if status.step is not None and status.target_steps:
        parts.append(_bar(status, width))
    if status.ranks:
        parts.append(_ranks(status, width, max_rows=max(3, height - _OTHER_LINES - _LAST_EVENTS)))
    parts += [_line(text, style) for text, style in _facts(status)]
    if events:
        parts.append(Text(""))
        parts += [
            _line(f"{wording.clock(event.time)}  {wording.event_line(event)}", "dim")
            for event in events[-_LAST_EVENTS:]
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
    facts = [steps_text(status)]
    if status.loss is not None:
        facts.append(f"loss {wording.number(status.loss)}")
    if status.examples_per_s is not None:
        facts.append(wording.rate(status.examples_per_s))
    if status.eta_s is not None:
        facts.append(f"{wording.duration(status.eta_s)} to go")
    told = "  ".join(facts)
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
    section = rank.section if rank.exit_code is None else f"exit {wording.exit_code(rank.exit_code)}"
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
