"""`init()`: makes a TensorFlow process a member of its gang. Owns strategy, seed, precision and identity.

Waits for no peer: the first variable does, and the agent bounds that wait by ending the round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from phalanx.contract import WorkerEnv
from phalanx.errors import IncompatibleError
from phalanx.train import agreement, keras_adapter, loop, private_keras, private_tf
from phalanx.train.loop import FitResult
from phalanx.train.reporting import Reporter
from phalanx.train.settings import Settings, resolve
from phalanx.train.sources import Source


@dataclass(frozen=True)
class Run:
    """This process as a member of the gang; rank 0 is the chief. `round` is 0 without an agent."""

    strategy: Any
    rank: int
    world_size: int
    round: int
    settings: Settings
    env: WorkerEnv | None = field(repr=False)
    reporter: Reporter = field(repr=False)

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0, which writes checkpoints and speaks for all."""
        return self.rank == 0

    def scope(self) -> Any:
        """The strategy's scope: make model and optimizer, and compile, within it."""
        return self.strategy.scope()

    def prepare(self, model: Any) -> Any:
        """Make the stock `fit`, `evaluate` and `predict` of a compiled Keras 3 model work on all ranks.

        Changes this instance only and returns it; what is saved from it loads as a plain model. Raises
        IncompatibleError for what cannot work, saying what to do instead.
        """
        self._attach(model)
        return model

    def fit(
        self,
        model: Any,
        dataset_fn: Source | Callable[[Run], Source],
        steps: int | None = None,
        validation: Source | Callable[[Run], Source] | None = None,
        validation_every: int | None = None,
        log_every: int = 50,
    ) -> FitResult:
        """Train a compiled Keras 3 model on all ranks, from its newest checkpoint on if there is one.

        `dataset_fn` is `data.from_arrays(...)`, a tf.data.Dataset of this rank's own batches, or a function
        of this run that returns one. `steps` is the last step of the job, not of this round; the job file's
        `train.steps` wins over it. `validation` is evaluated over all ranks every `validation_every` steps
        and at the end. Metrics are read and logged every `log_every` steps, each time over the steps since
        the last. All ranks must pass the same numbers.

        Raises IncompatibleError for what cannot work, CheckpointMismatchError for a checkpoint of another
        model, CheckpointError when the last one cannot be saved, and, on the chief, SystemExit with
        ExitCode.PREEMPTED when SIGTERM came and the state is saved.
        """
        request = loop.Request(dataset_fn, steps, validation, validation_every or 0, log_every)
        return loop.fit(self, self._attach(model), model, request)

    def _attach(self, model: Any) -> keras_adapter.Adapter:
        return keras_adapter.attach(
            model,
            strategy=self.strategy,
            world_size=self.world_size,
            rank=self.rank,
            xla=self.settings.xla,
            reporter=self.reporter,
        )


_run: Run | None = None


def init(
    *,
    steps: int | None = None,
    global_batch: int | None = None,
    seed: int = 0,
    precision: str = "float32",
    xla: bool = False,
    checkpoint_dir: str | Path | None = None,
    checkpoint_every_steps: int = 500,
    checkpoint_keep: int = 5,
) -> Run:
    """Join the gang and return this process's `Run`; a second call returns the same one.

    Call it before anything else of TensorFlow. The arguments hold where the job file says nothing, so the
    same script runs under `phalanx run` and as plain `python train.py`, which trains in this one process.
    Seeds Python, NumPy and Keras, and sets the Keras dtype policy. Raises IncompatibleError for versions,
    settings or devices that cannot work.
    """
    global _run
    if _run is None:
        script = Settings(
            steps=steps,
            global_batch=global_batch,
            seed=seed,
            precision=precision,
            xla=xla,
            checkpoint_dir=Path(checkpoint_dir) if checkpoint_dir is not None else None,
            checkpoint_every_steps=checkpoint_every_steps,
            checkpoint_keep=checkpoint_keep,
        )
        _run = _join(_read_env(), script)
    return _run


def _read_env() -> WorkerEnv | None:
    try:
        env = WorkerEnv.from_env(os.environ)
    except (KeyError, ValueError, TypeError) as error:
        raise IncompatibleError(
            f"the agent's settings cannot be read: {error}",
            "agent and worker need the same version of phalanx installed",
        ) from error
    workers = _workers_in_tf_config()
    if env is None and len(workers) > 1:
        raise IncompatibleError(
            f"TF_CONFIG names {len(workers)} workers, but no phalanx agent started this process",
            "start the script with `phalanx run`, or unset TF_CONFIG to train in one process",
        )
    return env


def _workers_in_tf_config() -> list[str]:
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return [*cluster.get("chief", []), *cluster.get("worker", [])]


def _join(env: WorkerEnv | None, script: Settings) -> Run:
    reporter = Reporter(env)
    settings = resolve(env, script)
    private_keras.self_test()
    world_size = env.world_size if env else 1
    if world_size > 1:
        strategy = private_tf.multi_worker_strategy()
        replicas = strategy.num_replicas_in_sync
        if replicas != world_size:
            raise IncompatibleError(
                f"{world_size} workers hold {replicas} replicas; each worker needs exactly one device",
                "let each worker see one GPU (CUDA_VISIBLE_DEVICES in its environment), or none",
            )
        reporter.section("join")
        agreement.meet(strategy)
        reporter.section("setup")
    else:
        strategy = tf.distribute.get_strategy()
    keras.utils.set_random_seed(settings.seed)
    if settings.precision != "float32":
        keras.config.set_dtype_policy(settings.precision)
    return Run(
        strategy=strategy,
        rank=env.rank if env else 0,
        world_size=world_size,
        round=env.round if env else 0,
        settings=settings,
        env=env,
        reporter=reporter,
    )
