"""Starts worker processes by hand, as an agent would, for tests of the worker's library alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.contract import WorkerEnv


@dataclass(frozen=True)
class Gang:
    """Running workers, by rank, and the files with their output."""

    workers: tuple[subprocess.Popen[bytes], ...]
    logs: tuple[Path, ...]
    run_dir: Path

    def wait(self, timeout_s: float) -> list[int]:
        """Return codes of all workers; whoever is not done in time is killed and the test fails."""
        try:
            return [worker.wait(timeout_s) for worker in self.workers]
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process groups of all workers."""
        for worker in self.workers:
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait(10)

    def output(self) -> str:
        """Everything that all workers printed."""
        return "\n".join(f"--- rank {rank}\n{log.read_text()}" for rank, log in enumerate(self.logs))


def start_gang(
    command: Sequence[str],
    world_size: int,
    run_dir: Path,
    *,
    env: Mapping[str, str] | None = None,
    steps: int | None = None,
    global_batch: int | None = None,
    seed: int | None = None,
    checkpoint_every_steps: int = 500,
) -> Gang:
    """Start `python COMMAND...` once a rank, with TF_CONFIG and the environment of a worker, no fence."""
    run_dir.mkdir(parents=True, exist_ok=True)
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(world_size)]
    workers, logs = [], []
    for rank in range(world_size):
        worker_env = WorkerEnv(
            run_dir=str(run_dir),
            job="test",
            job_hash="0",
            round=1,
            rank=rank,
            world_size=world_size,
            local_rank=rank,
            fence="",
            checkpoint_dir=str(run_dir / "checkpoints"),
            checkpoint_every_steps=checkpoint_every_steps,
            checkpoint_keep=5,
            grace_s=30.0,
            steps=steps,
            global_batch=global_batch,
            seed=seed,
        )
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        logs.append(run_dir / f"rank-{rank}.log")
        with logs[-1].open("wb") as log:
            workers.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**os.environ, **(env or {}), **worker_env.to_env(), "TF_CONFIG": json.dumps(task)},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    return Gang(tuple(workers), tuple(logs), run_dir)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
