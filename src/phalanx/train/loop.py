"""The training loop of `run.fit`: steps, metrics, checkpoints and evaluation, at the same steps on all ranks.

Decides nothing about step numbers (`schedule` does) and nothing about failures (the agent does).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from phalanx.contract import ExitCode
from phalanx.errors import IncompatibleError
from phalanx.events.kinds import Kind
from phalanx.train import agreement, sources
from phalanx.train.checkpointing import Checkpoints, Restored
from phalanx.train.data import ArrayData
from phalanx.train.execution import Execution, evaluation_step, loss_of
from phalanx.train.keras_adapter import Adapter
from phalanx.train.reporting import numbers
from phalanx.train.schedule import Schedule
from phalanx.train.stopping import StopFlag

if TYPE_CHECKING:
    from phalanx.train.context import Run

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Request:
    """The arguments of `run.fit`, as given; 0 for an interval means never."""

    dataset_fn: Any
    steps: int | None
    validation: Any
    validation_every: int
    log_every: int


@dataclass(frozen=True)
class FitResult:
    """How training ended: `metrics` since the log point before, `validation` from the last evaluation.

    `history` holds (step, metrics) of every log point of this round; `resumed_from` is 0 for a fresh start.
    """

    step: int
    metrics: Metrics = field(default_factory=dict)
    validation: Metrics = field(default_factory=dict)
    history: tuple[tuple[int, Metrics], ...] = ()
    resumed_from: int = 0


def fit(run: Run, adapter: Adapter, model: Any, request: Request) -> FitResult:
    """Train `model` up to the last step; see `Run.fit`."""
    schedule = _schedule(run, model, request)
    with StopFlag() as stop:
        return _Loop(run, adapter, model, request, schedule, stop).run()


def _schedule(run: Run, model: Any, request: Request) -> Schedule:
    """When what happens. Raises IncompatibleError for a number of steps that is missing or cannot be."""
    steps = run.settings.steps or request.steps
    if steps is None or steps < 1:
        raise IncompatibleError(
            "nothing says how many steps to train" if steps is None else f"steps is {steps}",
            "set train.steps in the job file, or run.fit(..., steps=...)",
        )
    for name in ("log_every", "validation_every"):
        if getattr(request, name) < 0:
            raise IncompatibleError(f"{name} is {getattr(request, name)}", f"{name} is a number of steps")
    return Schedule(
        steps=steps,
        log_every=request.log_every,
        validation_every=(request.validation_every or steps) if request.validation is not None else 0,
        checkpoint_every=run.settings.checkpoint_every_steps if run.settings.checkpoint_dir else 0,
        steps_per_execution=model.steps_per_execution,
    )


class _Loop:
    """One call of `fit`. Steps are global steps of the job, counted over all its rounds."""

    def __init__(
        self, run: Run, adapter: Adapter, model: Any, request: Request, schedule: Schedule, stop: StopFlag
    ) -> None:
        self._gang = run
        self._adapter = adapter
        self._model = model
        self._schedule = schedule
        self._stop = stop
        self._report = run.reporter
        self._source = sources.resolve(request.dataset_fn, run)
        self._validation = (
            sources.resolve(request.validation, run) if request.validation is not None else None
        )
        self._evaluation_step: Callable[[Any], Any] | None = None
        self._checkpoints = _checkpoints(run)
        self._step = self._resumed_from = self._examples = 0
        self._history: list[tuple[int, Metrics]] = []
        self._evaluated: Metrics = {}

    def run(self) -> FitResult:
        """Restore, train to the end, and say how it went."""
        started = time.monotonic()
        batches = sources.training_batches(self._source, self._gang, 0)
        self._adapter.build(self._model, batches.element_spec)
        self._restore()
        self._check_agreement()
        self._tell_start()
        if self._step < self._schedule.steps:
            self._train()
        elif self._validation is not None:
            self._evaluate(self._validation)
        self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
        agreement.close(self._gang.strategy)
        metrics = self._history[-1][1] if self._history else {}
        seconds = round(time.monotonic() - started, 3)
        self._report.section("done")
        self._report.event(Kind.TRAINING_FINISHED, step=self._step, metrics=dict(metrics), seconds=seconds)
        return FitResult(self._step, metrics, self._evaluated, tuple(self._history), self._resumed_from)

    def _restore(self) -> None:
        """Take the state and the step of the newest checkpoint, if there is one."""
        if self._checkpoints is None:
            return
        with self._gang.scope():
            restored = self._checkpoints.restore(self._model)
        if restored is None:
            return
        self._adapter.take_own_seeds(self._model, restored=True)
        self._step = self._resumed_from = restored.step
        self._warn_of_other_order(restored)

    def _warn_of_other_order(self, restored: Restored) -> None:
        """Say that examples come in another order than before, when a setting that decides it was changed."""
        for name, now in self._data_position().items():
            before = restored.data_position.get(name)
            if before != now and self._gang.is_chief:
                self._report.warning(
                    f"{name} is {now} and was {before} when {restored.path.name} was saved: "
                    "from here on the order of the examples is that of the new value"
                )

    def _data_position(self) -> dict[str, Any]:
        """What decides, with the step, which examples come next."""
        settings = self._gang.settings
        if not isinstance(self._source, ArrayData):
            return {}
        return {
            "seed": settings.seed,
            "global_batch": settings.global_batch,
            "examples": self._source.examples,
        }

    def _check_agreement(self) -> None:
        """End here, naming what differs, when ranks hold different numbers: later they would only hang."""
        schedule = self._schedule
        agreement.check_agreement(
            self._gang.strategy,
            self._gang.rank,
            {
                "the step to start from": self._step,
                "steps": schedule.steps,
                "log_every": schedule.log_every,
                "validation_every": schedule.validation_every,
                "steps_per_execution": schedule.steps_per_execution,
                "global_batch": self._gang.settings.global_batch or 0,
                "the number of weights": int(self._model.count_params()),
                "the number of examples": self._data_position().get("examples", 0),
                "the seed of the order of examples": self._data_position().get("seed", 0),
            },
        )

    def _tell_start(self) -> None:
        settings = self._gang.settings
        if self._report.board is not None:
            self._report.board.begin_training(self._step, self._schedule.steps)
        self._report.event(
            Kind.TRAINING_STARTED,
            start_step=self._step,
            steps=self._schedule.steps,
            resumed_from=self._resumed_from or None,
            global_batch=settings.global_batch,
            precision=settings.precision,
            xla=settings.xla,
        )
        if self._step >= self._schedule.steps:
            told = f"nothing left to train: the checkpoint is at step {self._step} of {self._schedule.steps}"
        else:
            workers = f"{self._gang.world_size} worker{'s' if self._gang.world_size > 1 else ''}"
            told = f"training from step {self._step} to {self._schedule.steps} on {workers}"
        self._report.info(told)

    def _train(self) -> None:
        execution = Execution(self._gang, self._adapter, self._model, self._source)
        batches = iter(sources.training_batches(self._source, self._gang, self._step))
        board = self._report.board
        self._model.reset_metrics()
        # The first execution compiles and is left out of the first rate.
        window_start, window_examples = math.nan, 0
        while self._step < self._schedule.steps:
            count = self._schedule.next_steps(self._step)
            if board is not None:
                board.steps_begun(self._step + count)
            logs, examples = self._execute(execution, batches, count)
            loss = loss_of(logs)
            first = self._examples == 0
            self._step += count
            self._examples += count * examples
            window_examples += count * examples
            rate = window_examples / (time.monotonic() - window_start)
            if board is not None:
                board.steps_done(self._step, self._examples)
                board.measured(loss, rate)
            if first and self._resumed_from:
                self._report.event(Kind.STEP_RESUMED, step=self._step)
            if self._work_between_steps(rate) or first:
                window_start, window_examples = time.monotonic(), 0

    def _execute(self, execution: Execution, batches: Any, count: int) -> tuple[Any, int]:
        """Run `count` steps; returns this rank's logs and how many examples one step uses on all ranks."""
        try:
            logs, own_examples = execution(batches, count)
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            raise IncompatibleError(
                f"the data set of rank {self._gang.rank} ended after step {self._step}, "
                f"before the last step {self._schedule.steps}",
                "end it with .repeat(), or train fewer steps",
            ) from error
        if isinstance(self._source, ArrayData):
            return logs, self._gang.settings.global_batch or 0
        return logs, own_examples * self._gang.world_size

    def _work_between_steps(self, rate: float) -> bool:
        """Log, save, stop and evaluate as scheduled; true when that took time from training."""
        step, schedule = self._step, self._schedule
        if schedule.logs_at(step):
            self._log(rate)
        if schedule.saves_at(step):
            self._save(final=step == schedule.steps)
        if step < schedule.steps or schedule.evaluates_at(step):
            self._leave_if_asked()
        if schedule.evaluates_at(step):
            assert self._validation is not None
            self._evaluate(self._validation)
        return schedule.logs_at(step) or schedule.saves_at(step)

    def _save(self, *, final: bool) -> None:
        if self._checkpoints is None:
            return
        if self._gang.is_chief:
            self._report.section("checkpoint")
        self._checkpoints.save(self._model, self._step, self._data_position(), final=final)

    def _leave_if_asked(self) -> None:
        """On SIGTERM the chief saves and leaves.

        The others go on until they lose it: by leaving first they would take its next step, and with it its
        checkpoint, away.
        """
        if not self._stop.requested or not self._gang.is_chief:
            return
        if self._checkpoints is None:
            self._report.info(f"stopped at step {self._step}; nothing is saved: no checkpoint directory")
            raise SystemExit(int(ExitCode.TERMINATED))
        self._save(final=True)
        self._report.info(f"stopped at step {self._step}, which is saved")
        raise SystemExit(int(ExitCode.PREEMPTED))

    def _log(self, rate: float) -> None:
        metrics = self._read_metrics()
        self._history.append((self._step, metrics))
        self._report.event(
            Kind.PROGRESS,
            step=self._step,
            loss=metrics.get("loss"),
            metrics=dict(metrics),
            examples_per_s=None if math.isnan(rate) else round(rate, 1),
        )
        speed = "" if math.isnan(rate) else f"  {rate:.0f} examples/s"
        self._report.info(f"step {self._step}/{self._schedule.steps}  {numbers(metrics)}{speed}")

    def _read_metrics(self) -> Metrics:
        """Metrics over all ranks since the last reading: a collective, so all ranks read at the same step."""
        # A metric of several values (one a class) is told as their mean.
        metrics = {name: float(np.mean(value)) for name, value in self._model.get_metrics_result().items()}
        self._model.reset_metrics()
        return metrics

    def _evaluate(self, validation: sources.Source) -> None:
        self._report.section("evaluate")
        if self._evaluation_step is None:
            self._evaluation_step = evaluation_step(self._gang, self._model)
        self._model.reset_metrics()
        for batch in sources.validation_batches(validation, self._gang):
            self._evaluation_step(batch)
            self._leave_if_asked()
        self._evaluated = self._read_metrics()
        self._report.event(Kind.EVALUATED, step=self._step, metrics=dict(self._evaluated))
        self._report.info(f"step {self._step}  validation  {numbers(self._evaluated)}")


def _checkpoints(run: Run) -> Checkpoints | None:
    settings, env = run.settings, run.env
    if settings.checkpoint_dir is None:
        return None
    return Checkpoints(
        settings.checkpoint_dir,
        keep=settings.checkpoint_keep,
        rank=run.rank,
        round_number=run.round,
        world_size=run.world_size,
        fence=env.fence if env else None,
        job=env.job if env else "",
        job_hash=env.job_hash if env else "",
        seed=settings.seed,
        events=run.reporter.events,
    )
