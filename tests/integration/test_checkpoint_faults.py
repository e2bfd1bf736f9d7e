"""kill -9 while saving, a full disk and a read-only one: no committed checkpoint is lost."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from checkpoint_samples import names_in
from phalanx.checkpoint import payload
from phalanx.checkpoint.store import Corrupt, newest_valid

HERE = Path(__file__).parent
ENVIRON = {**os.environ, "PYTHONPATH": str(HERE.parent)}


def must_not(corrupt: Corrupt) -> None:
    pytest.fail(f"a committed checkpoint is broken: {corrupt}")


@pytest.mark.parametrize("seed", range(6))
def test_kill_9_while_saving_loses_nothing_committed(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    directory = tmp_path / "checkpoints"
    pause = threading.Event()
    committed = 0
    for _ in range(3):
        program = [
            sys.executable,
            str(HERE / "programs" / "save_loop.py"),
            str(directory),
            str(committed + 1),
            "2",
        ]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=ENVIRON) as child:
            assert child.stdout is not None
            for _ in range(rng.randint(1, 12)):
                committed = int(child.stdout.readline())
            pause.wait(rng.random() * 0.01)  # somewhere within the next save; not a wait for anything
            child.send_signal(signal.SIGKILL)
            committed = max([committed, *(int(line) for line in child.stdout.read().split())])
            assert child.wait(10) == -signal.SIGKILL
        found = newest_valid(directory, must_not)
        assert found is not None
        # It may have been killed between the commit and the line that says so.
        assert found.step in (committed, committed + 1)
        state = payload.read(found.path / "state.safetensors")
        assert np.array_equal(state["w"], np.full(20_000, found.step, np.float32))
        committed = found.step
        assert len([name for name in names_in(directory) if name.startswith("step-")]) <= 3


def own_mounts() -> list[str]:
    """A command prefix that may mount file systems for itself alone; skips where the system allows none."""
    prefix = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None:
        pytest.skip("no `unshare` command, so no small file system of our own")
    probe = ["mount", "-t", "tmpfs", "probe", "/mnt"]
    if subprocess.run([*prefix, *probe], check=False, capture_output=True, timeout=20).returncode != 0:
        pytest.skip("this system lets us mount nothing, not even in a namespace of our own")
    return prefix


def test_a_really_full_and_a_really_read_only_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    program = [*own_mounts(), sys.executable, str(HERE / "programs" / "small_disk.py"), str(disk)]
    found = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60, env=ENVIRON)
    assert found.returncode == 0, found.stderr
    full, left, read_only, no_fence, skipped, set_aside = found.stdout.splitlines()
    assert f"saving the checkpoint of step 3 failed in {disk}/checkpoints: No space left on device;" in full
    assert "bytes are free there | " in full
    assert left == "['step-000000001', 'step-000000002']"
    assert "Read-only file system |   hint: the file system is read-only: name another" in read_only
    assert "taking the checkpoint directory failed" in no_fence
    assert skipped.startswith("2 None state.safetensors is truncated: 9 of ")
    assert set_aside.startswith("2 corrupt-step-000000004-")
