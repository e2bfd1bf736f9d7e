"""How long `import phalanx` and `phalanx --help` take, beside a bare Python.

    python benchmarks/startup.py [--quick] [--out DIR]

Each round runs all commands once, one after the other, so that a busy moment of the machine hits all of them.
Figures are medians over the rounds; the ratio is to the bare Python of the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import phalanx": [sys.executable, "-c", "import phalanx"],
    "phalanx --help": [str(Path(sysconfig.get_path("scripts")) / "phalanx"), "--help"],
}
BARE = "python -c pass"


def seconds(command: list[str]) -> float:
    """Wall time of one run. Raises CalledProcessError when it fails, or hangs for a minute.

    A wait with a time-out of its own would ask in steps of up to 50 ms, and measure those.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    code = process.wait()
    taken = time.perf_counter() - started
    watchdog.cancel()
    if code:
        raise subprocess.CalledProcessError(code, command)
    return taken


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds, milliseconds above the bare Python, and ratio to it, for each command."""
    for command in COMMANDS.values():  # fills the file cache and writes the byte code
        seconds(command)
    taken = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(rounds)]
    return {
        name: {
            "ms": 1000 * statistics.median(one[name] for one in taken),
            "above_python_ms": 1000 * statistics.median(one[name] - one[BARE] for one in taken),
            "ratio": statistics.median(one[name] / one[BARE] for one in taken),
        }
        for name in COMMANDS
    }


def main() -> None:
    """Print the table; with --out also write it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 30")
    parser.add_argument("--out", type=Path, help="directory for startup.json")
    options = parser.parse_args()
    rounds = 5 if options.quick else 30
    figures = measure(rounds)
    print(f"start-up, medians of {rounds} runs")
    print(f"  {'command':<16} {'ms':>7} {'above python':>13} {'ratio':>6}")
    for name, row in figures.items():
        print(f"  {name:<16} {row['ms']:>7.1f} {row['above_python_ms']:>13.1f} {row['ratio']:>6.2f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "startup.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
