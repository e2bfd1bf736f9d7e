"""Every failure that the product promises to bear, on real TensorFlow workers, through the `phalanx` command.

Each case asserts the exit code, the message that a user needs, and that no committed checkpoint is lost;
a fixture asserts that no process outlives its test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from phalanx.checkpoint.store import list_committed
from phalanx.contract import ExitCode, exit_code_of
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader
from waiting import wait_for

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(180)]
PROGRAM = Path(__file__).parent / "programs" / "matrix_train.py"
PHALANX = Path(sys.executable).with_name("phalanx")
LIMIT_S = 90


@dataclass
class Launched:
    """A `phalanx run` in the foreground and its run directory."""

    process: subprocess.Popen[str]
    home: Path

    @property
    def run_dir(self) -> Path:
        """The newest run under this home."""
        return wait_for(lambda: sorted((self.home / "runs").glob("*/")), LIMIT_S, "a run directory")[-1]

    def events(self, kind: Kind) -> list[Event]:
        """Events of one kind so far."""
        return [
            event for event in EventReader(self.run_dir / "events.jsonl").read_new() if event.kind is kind
        ]

    def wait_event(self, kind: Kind, count: int = 1) -> Event:
        """Wait for the `count`-th event of a kind."""
        wait_for(
            lambda: len(self.events(kind)) >= count or self.process.poll() is not None, LIMIT_S, str(kind)
        )
        assert len(self.events(kind)) >= count, self.process.communicate()[0]
        return self.events(kind)[count - 1]

    def kill_rank(self, rank: int) -> None:
        """SIGKILL a worker of the present round."""
        started = [event for event in self.events(Kind.WORKER_STARTED) if event.rank == rank]
        os.kill(started[-1].data["pid"], signal.SIGKILL)

    def end(self) -> tuple[int, str]:
        """Exit code and everything printed."""
        output, _ = self.process.communicate(timeout=LIMIT_S)
        assert "Traceback" not in output or "ValueError: income" in output
        return exit_code_of(self.process.returncode), output


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    return {
        "apiVersion": "phalanx/v1",
        "kind": "TrainingJob",
        "name": "matrix",
        "entrypoint": str(PROGRAM),
        "workers": {"count": 2},
        "train": {"steps": 150, "global_batch": 16, "seed": 1},
        "checkpoint": {"dir": str(tmp_path / "checkpoints"), "every_steps": 20, "keep": 3},
        "failure": {"max_restarts": 3, "grace_s": 20},
    }


@pytest.fixture
def launch(tmp_path: Path, job: dict[str, Any]) -> Iterator[Callable[..., Launched]]:
    launched: list[Launched] = []

    def start(*command: str) -> Launched:
        file = tmp_path / "job.yaml"
        file.write_text(json.dumps(job, indent=1))  # JSON is YAML
        process = subprocess.Popen(
            [str(PHALANX), *(command or ("run", str(file)))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        launched.append(Launched(process, Path(os.environ["PHALANX_HOME"])))
        return launched[-1]

    yield start
    for each in launched:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate(timeout=10)


def committed_steps(job: dict[str, Any]) -> list[int]:
    return [each.step for each in list_committed(Path(job["checkpoint"]["dir"]))]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_costs_one_round(launch: Any, job: dict[str, Any], rank: int) -> None:
    run = launch()
    run.wait_event(Kind.CHECKPOINT_COMMITTED, 2)
    run.kill_rank(rank)
    code, output = run.end()
    assert code == ExitCode.SUCCESS, output
    ended = run.events(Kind.ROUND_ENDED)
    assert (ended[0].rank, len(ended)) == (rank, 2)
    restored = run.events(Kind.CHECKPOINT_RESTORED)[0]
    assert restored.data["step"] >= 40
    assert run.events(Kind.STEP_RESUMED)[0].data["step"] == restored.data["step"] + 1
    assert committed_steps(job)[-1] == 150


def test_a_killed_agent_takes_its_workers_along_and_the_run_resumes(launch: Any, job: dict[str, Any]) -> None:
    run = launch()
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    agent = json.loads((run.run_dir / "agent.json").read_text())["pid"]
    os.kill(agent, signal.SIGKILL)
    code, output = run.end()
    assert code == ExitCode.INFRASTRUCTURE
    assert f"phalanx resume {run.run_dir.name}" in output
    before = committed_steps(job)
    resumed = launch("resume", run.run_dir.name)
    code, output = resumed.end()
    assert code == ExitCode.SUCCESS, output
    assert run.events(Kind.TRAINING_STARTED)[-1].data["start_step"] == before[-1]


def test_sigterm_saves_and_stops(launch: Any, job: dict[str, Any]) -> None:
    run = launch()
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    run.process.send_signal(signal.SIGTERM)
    code, output = run.end()
    assert code == ExitCode.TERMINATED, output
    finished = run.wait_event(Kind.RUN_FINISHED)
    assert finished.data["state"] == "stopped"
    last = run.events(Kind.CHECKPOINT_COMMITTED)[-1]
    requested = run.events(Kind.STOP_REQUESTED)[0]
    assert last.time > requested.time, "a checkpoint was saved within the grace period"
    assert committed_steps(job)[-1] == last.data["step"] < 150


def test_an_exception_in_one_rank_does_not_loop(launch: Any, job: dict[str, Any]) -> None:
    job["args"] = ["--raise-in-rank", "1"]
    run = launch()
    code, output = run.end()
    assert code == ExitCode.USER_ERROR, output
    assert "ValueError" in output
    assert "income must not be negative: -7" in output
    assert "rank 1" in output
    assert len(run.events(Kind.ROUND_STARTED)) == 2


def test_a_worker_that_leaves_early_is_named(launch: Any, job: dict[str, Any]) -> None:
    job["args"] = ["--leave-in-rank", "1"]
    run = launch()
    code, output = run.end()
    assert code == ExitCode.SUCCESS, output
    ended = run.events(Kind.ROUND_ENDED)[0]
    assert ended.rank == 1
    assert "exited with 0 after step 29 of 150" in ended.data["message"]


def test_a_worker_that_never_joins_is_not_waited_for(launch: Any, job: dict[str, Any]) -> None:
    job["args"] = ["--absent-rank", "1"]
    run = launch()
    code, output = run.end()
    assert code == ExitCode.USER_ERROR, output
    assert [event.rank for event in run.events(Kind.ROUND_ENDED)] == [1, 1]
    assert "rank 1: exited with 0 while work remained" in output


def test_a_worker_that_cannot_bind_ends_the_round_with_that_reason(launch: Any, job: dict[str, Any]) -> None:
    job["args"] = ["--refuse-shared-port"]  # the worker's server then finds its port taken, by the agent
    job["failure"]["max_restarts"] = 1
    run = launch()
    code, output = run.end()
    assert code == ExitCode.INFRASTRUCTURE, output
    addresses = [event.data["addresses"] for event in run.events(Kind.ROUND_STARTED)]
    assert any(f"port {address} of this rank is taken" in output for address in addresses[1])
    assert len(addresses) == 2
    assert not set(addresses[0]) & set(addresses[1]), "each round has fresh ports"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    mounted = subprocess.run(mount, check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("needs root for a small disk of its own: sudo make test")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_fills_up_loses_no_checkpoint(launch: Any, job: dict[str, Any], small_disk: Path) -> None:
    job["checkpoint"]["dir"] = str(small_disk / "checkpoints")
    run = launch()
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    free = os.statvfs(small_disk)
    (small_disk / "other").write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    before = committed_steps(job)
    failed = run.wait_event(Kind.CHECKPOINT_FAILED)
    assert "No space left" in failed.data["message"]
    code, output = run.end()
    assert code == ExitCode.CHECKPOINT, output
    assert "No space left" in output
    assert set(before) <= set(committed_steps(job))
    (small_disk / "other").unlink()
    resumed = launch("resume", run.run_dir.name)
    code, output = resumed.end()
    assert code == ExitCode.SUCCESS, output


def test_a_read_only_directory_is_told_before_training(
    launch: Any, job: dict[str, Any], small_disk: Path
) -> None:
    job["checkpoint"]["dir"] = str(small_disk / "checkpoints")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    run = launch()
    code, output = run.end()
    assert code == ExitCode.CHECKPOINT, output
    assert str(small_disk) in output
    assert "Read-only file system" in output
    assert not run.events(Kind.WORKER_STARTED)


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize("damage", [corrupt, truncate])
def test_a_damaged_newest_checkpoint_is_set_aside(
    launch: Any, job: dict[str, Any], damage: Callable[[Path], None]
) -> None:
    job["train"]["steps"] = 60
    job["args"] = ["--step-ms", "1"]
    code, output = launch().end()
    assert code == ExitCode.SUCCESS, output
    newest = Path(job["checkpoint"]["dir"]) / "step-000000060"
    damage(newest / "state.safetensors")
    job["train"]["steps"] = 80
    run = launch()
    code, output = run.end()
    assert code == ExitCode.SUCCESS, output
    assert run.events(Kind.CHECKPOINT_RESTORED)[0].data["step"] == 40
    (found,) = run.events(Kind.CHECKPOINT_CORRUPT)
    assert "step-000000060" in found.data["path"]
    assert Path(found.data["moved_to"]).is_dir()
    assert committed_steps(job) == [40, 60, 80]


def test_the_checkpoints_of_another_model_are_refused(launch: Any, job: dict[str, Any]) -> None:
    job["train"]["steps"] = 20
    job["args"] = ["--step-ms", "1"]
    assert launch().end()[0] == ExitCode.SUCCESS
    saved = Path(job["checkpoint"]["dir"])
    copy = saved.with_name("copy")
    shutil.copytree(saved, copy)
    job["args"] = ["--step-ms", "1", "--units", "9"]
    job["train"]["steps"] = 40
    run = launch()
    code, output = run.end()
    assert code == ExitCode.NO_RESTART, output
    assert "different model" in output
    assert len(run.events(Kind.ROUND_STARTED)) == 1, "no restart can mend it"
    for file in copy.rglob("*.safetensors"):
        assert (saved / file.relative_to(copy)).read_bytes() == file.read_bytes()
