"""`JobSpec` -> `Plan`. Pure: the same input gives the same bytes; what the machine has is an argument."""

from __future__ import annotations

import hashlib
import json

from phalanx.plan.model import (
    CheckpointPlan,
    Entrypoint,
    FailurePlan,
    LogPlan,
    Plan,
    TrainPlan,
    WorkerPlan,
)
from phalanx.spec.job import JobSpec

NODE = "localhost"

# TensorFlow's two thread pools and that of OpenMP libraries. Each is as large as the machine by default, so N
# workers would run N times as many threads as there are cores.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS")


def make_plan(spec: JobSpec, *, cores: int) -> Plan:
    """Plan a job on one node with `cores` processor cores (len(os.sched_getaffinity(0)) on this machine).

    What the job file's `env` says wins over the numbers of threads that follow from `workers.cpus`.
    """
    threads = str(cpus_per_worker(spec, cores=cores))
    env = {**dict.fromkeys(THREAD_VARIABLES, threads), **spec.env}
    return Plan(
        job=spec.name,
        job_hash=job_hash(spec),
        entrypoint=Entrypoint(spec.entrypoint.kind, spec.entrypoint.target, spec.args),
        working_dir=spec.working_dir,
        workers=tuple(WorkerPlan(rank, rank, NODE, env) for rank in range(spec.workers.count)),
        train=TrainPlan(
            steps=spec.train.steps,
            global_batch=spec.train.global_batch,
            seed=spec.train.seed,
            precision=spec.train.precision,
            xla=spec.train.xla,
        ),
        checkpoint=CheckpointPlan(
            dir=spec.checkpoint.dir, every_steps=spec.checkpoint.every_steps, keep=spec.checkpoint.keep
        ),
        failure=FailurePlan(
            max_restarts=spec.failure.max_restarts,
            grace_s=spec.failure.grace_s,
            no_progress_rounds=spec.failure.no_progress_rounds,
        ),
        logs=LogPlan(dir=spec.logs.dir, tail_lines=spec.logs.tail_lines),
    )


def cpus_per_worker(spec: JobSpec, *, cores: int) -> int:
    """Cores for each worker: what the job says, else an even share of `cores`, at least one."""
    return spec.workers.cpus or max(1, cores // spec.workers.count)


def job_hash(spec: JobSpec) -> str:
    """SHA-256 (64 hex digits) of what decides how a step of training comes out.

    In it: the program (a script by its file name, so that a job may move), its arguments and environment,
    batch, seed, precision, XLA. Not in it: the job's name, the number of workers and steps, and where and how
    often checkpoints and logs are written: a job may go on with other ones.
    """
    target = spec.entrypoint.target
    meaning = {
        "entrypoint": target.rpartition("/")[2] if spec.entrypoint.kind == "script" else target,
        "args": spec.args,
        "env": dict(spec.env),
        "global_batch": spec.train.global_batch,
        "seed": spec.train.seed,
        "precision": spec.train.precision,
        "xla": spec.train.xla,
    }
    canonical = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
