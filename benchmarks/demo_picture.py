"""Draws a run from its event log: steps done over time, its checkpoints, and each restart.

python benchmarks/demo_picture.py RUN_DIR --out docs/images/demo-steps.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

from phalanx.contract import EVENTS_FILE
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader

SAVED = Kind.CHECKPOINT_COMMITTED
STEPS = (Kind.TRAINING_STARTED, Kind.STEP_RESUMED, Kind.PROGRESS, SAVED, Kind.TRAINING_FINISHED)


def step_of(event: Event) -> int:
    """The step that an event tells of."""
    return int(event.data["start_step"] if event.kind is Kind.TRAINING_STARTED else event.data["step"])


def draw(events: list[Event], out: Path) -> None:
    """Write the picture of `events` to `out`, as SVG."""
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "phalanx"
    from matplotlib import pyplot

    begin = events[0].time
    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    for number in sorted({event.round for event in events if event.round is not None}):
        line = [(e.time - begin, step_of(e)) for e in events if e.round == number and e.kind in STEPS]
        axes.plot(*zip(*line, strict=True), color="#2b5c8a", linewidth=1.8)
    saved = [(e.time - begin, step_of(e)) for e in events if e.kind is SAVED]
    axes.plot(*zip(*saved, strict=True), "o", color="#2b5c8a", markersize=5, label="checkpoint committed")
    failed = [e for e in events if e.kind is Kind.ROUND_ENDED and e.rank is not None]
    resumed = [e for e in events if e.kind is Kind.STEP_RESUMED]
    for failure, first in zip(failed, resumed, strict=True):
        lost, back = failure.time - begin, first.time - begin
        axes.axvspan(lost, back, color="#c0392b", alpha=0.15)
        text = f"rank {failure.rank} killed;\nfirst resumed step\n{back - lost:.1f} s later"
        axes.annotate(
            text, (lost, step_of(first)), (0, -12), textcoords="offset points", va="top", fontsize=9
        )
    axes.set(xlabel="seconds since the start of the run", ylabel="steps done", ylim=(0, None), xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    """Read the command line, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    events = list(EventReader(options.run_dir / EVENTS_FILE).read_new())
    draw(events, options.out)


if __name__ == "__main__":
    main()
