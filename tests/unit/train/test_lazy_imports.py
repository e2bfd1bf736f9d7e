"""`import phalanx.train` is cheap: TensorFlow comes with the first name that needs it."""

from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_no_tensorflow() -> None:
    program = (
        "import sys, phalanx.train, phalanx.train.order, phalanx.train.settings, phalanx.train.schedule, "
        "phalanx.train.seeds, phalanx.train.stopping, phalanx.train.reporting; "
        "print([name for name in ('tensorflow', 'keras', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names_are_refused() -> None:
    program = "import phalanx.train\ntry: phalanx.train.no_such\nexcept AttributeError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "no attribute 'no_such'" in done.stdout
