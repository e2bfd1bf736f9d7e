"""What a worker process is: command line and environment. Pure. The agent starts it, a dry run shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from phalanx.contract import CHECKPOINT_DIR, WorkerEnv, log_file
from phalanx.plan.cluster_spec import tf_config
from phalanx.plan.model import Plan, WorkerPlan


def checkpoint_dir(plan: Plan, run_dir: Path) -> Path:
    """Where the checkpoints of a run are: what the job says, else a directory of the run."""
    return Path(plan.checkpoint.dir) if plan.checkpoint.dir else run_dir / CHECKPOINT_DIR


def worker_log(plan: Plan, run_dir: Path, round_number: int, rank: int) -> Path:
    """Where everything goes that a worker prints. A directory that the job names may serve many runs."""
    base = Path(plan.logs.dir) / run_dir.name if plan.logs.dir else run_dir
    return log_file(base, round_number, rank)


def worker_argv(plan: Plan, python: str) -> tuple[str, ...]:
    """The command line of every worker; `python` is the interpreter."""
    entry = plan.entrypoint
    return (python, "-m", "phalanx.train.bootstrap", entry.kind, entry.target, *entry.args)


def worker_env(
    plan: Plan,
    run_dir: Path,
    round_number: int,
    worker: WorkerPlan,
    addresses: Sequence[str],
    fence: str,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """What a worker finds in its environment besides `inherited`, the environment of the agent.

    `addresses` are those of the round in the order of the ranks. A job cannot override the variables that
    hold the gang together.
    """
    told = WorkerEnv(
        run_dir=str(run_dir),
        job=plan.job,
        job_hash=plan.job_hash,
        round=round_number,
        rank=worker.rank,
        world_size=plan.world_size,
        local_rank=worker.local_rank,
        fence=fence,
        checkpoint_dir=str(checkpoint_dir(plan, run_dir)),
        checkpoint_every_steps=plan.checkpoint.every_steps,
        checkpoint_keep=plan.checkpoint.keep,
        grace_s=plan.failure.grace_s,
        steps=plan.train.steps,
        global_batch=plan.train.global_batch,
        seed=plan.train.seed,
        precision=plan.train.precision,
        xla=plan.train.xla,
    )
    return {
        # A worker that is killed must not take the last lines of its log with it.
        "PYTHONUNBUFFERED": "1",
        **worker.env,
        **told.to_env(),
        "TF_CONFIG": tf_config(addresses, worker.rank),
        # The agent holds the port bound with SO_REUSEPORT; with this TensorFlow binds beside it.
        "TF_GRPC_REUSE_PORT": "1",
        "no_grpc_proxy": _no_grpc_proxy({**inherited, **worker.env}, addresses),
    }


def _no_grpc_proxy(env: Mapping[str, str], addresses: Sequence[str]) -> str:
    """The hosts that gRPC reaches without the proxy of `http_proxy`: those it had, and all workers.

    Through a proxy TensorFlow's workers never find each other and wait for ever, also on loopback. gRPC looks
    at no_grpc_proxy before no_proxy (its doc/environment_variables.md), so what was in the latter is kept.
    """
    had = env.get("no_grpc_proxy") or env.get("no_proxy") or ""
    hosts = {address.rpartition(":")[0] for address in addresses}
    return ",".join([*filter(None, [had]), *sorted(hosts)])
