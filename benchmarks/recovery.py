"""Seconds from kill -9 of one of two workers to the first step after the restart.

    python benchmarks/recovery.py [--quick] [--out DIR]

Runs `phalanx run` on a small model, kills rank 1 after a committed checkpoint, and reads from the events
when the loss was seen, the new round began, the checkpoint was read and the first step was done.
Workers start cold: each pays for importing TensorFlow and Keras.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from phalanx.contract import EVENTS_FILE, HOME_ENV
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader

PHALANX = Path(sysconfig.get_path("scripts")) / "phalanx"
SCRIPT = Path(__file__).with_name("recovery_train.py")
TIMEOUT_S = 120
PHASES = {
    "loss seen": Kind.ROUND_ENDED,
    "new round": Kind.ROUND_STARTED,
    "checkpoint read": Kind.CHECKPOINT_RESTORED,
    "first step": Kind.STEP_RESUMED,
}


def wait_for(
    events: Callable[[], list[Event]], kind: Kind, after: float, process: subprocess.Popen[bytes]
) -> Event:
    """The first event of `kind` later than `after` (Unix seconds). Raises RuntimeError after two minutes."""
    pause = threading.Event()
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for event in events():
            if event.kind is kind and event.time > after:
                return event
        if process.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {process.returncode} before {kind.value}")
        pause.wait(0.02)
    raise RuntimeError(f"no {kind.value} within {TIMEOUT_S} s")


def reader_of(home: Path) -> Callable[[], list[Event]]:
    """A function that gives all events so far of the only run under `home`."""
    seen: list[Event] = []
    readers: list[EventReader] = []

    def events() -> list[Event]:
        if not readers:
            readers.extend(EventReader(path) for path in home.glob(f"runs/*/{EVENTS_FILE}"))
        for reader in readers:
            seen.extend(reader.read_new())
        return seen

    return events


def one_kill() -> dict[str, float]:
    """Start a run, kill rank 1 once, stop the run; seconds from the kill to each phase."""
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        command = [
            str(PHALANX),
            "run",
            str(SCRIPT),
            "-n",
            "2",
            "--plain",
            "--set",
            "checkpoint.every_steps=100",
        ]
        with (home / "output").open("wb") as output:
            process = subprocess.Popen(
                command, env={**os.environ, HOME_ENV: temporary}, stdout=output, stderr=output
            )
        events = reader_of(home)
        try:
            wait_for(events, Kind.CHECKPOINT_COMMITTED, 0, process)
            victim = next(e for e in events() if e.kind is Kind.WORKER_STARTED and e.rank == 1)
            killed_at = time.time()
            os.kill(victim.data["pid"], signal.SIGKILL)
            return {
                phase: wait_for(events, kind, killed_at, process).time - killed_at
                for phase, kind in PHASES.items()
            }
        except RuntimeError as error:
            raise SystemExit(f"{error}:\n{(home / 'output').read_text()[-3000:]}") from None
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the run; the second signal asks for it at once."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue


def main() -> None:
    """Print the table; with --out also write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one kill instead of five")
    parser.add_argument("--out", type=Path, help="directory for recovery.json")
    options = parser.parse_args()
    kills = [one_kill() for _ in range(1 if options.quick else 5)]
    print(f"seconds after kill -9 of one of two workers, {len(kills)} kill(s), cold start")
    print(f"  {'until':<16} {'median':>7}  least..most")
    for phase in PHASES:
        taken = [kill[phase] for kill in kills]
        print(f"  {phase:<16} {statistics.median(taken):>7.2f}  {min(taken):.2f}..{max(taken):.2f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "recovery.json").write_text(json.dumps(kills, indent=2) + "\n")


if __name__ == "__main__":
    main()
