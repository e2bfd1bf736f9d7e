"""The training loop of `run.fit`: steps, metrics, evaluation, checkpoints, each at the same step on all ranks.

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
from phalanx.train import order
from phalanx.train.agreement import check_agreement
from phalanx.train.data import ArrayData
from phalanx.train.keras_adapter import Adapter, examples_in
from phalanx.train.reporting import numbers
from phalanx.train.schedule import Schedule
from phalanx.train.stopping import StopFlag

if TYPE_CHECKING:
    from phalanx.train.context import Run

Source = ArrayData | tf.data.Dataset


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
    """How training ended: `metrics` over the steps since the last log point, `validation` at the last evaluation.

    `history` holds (step, metrics) of every log point of this round; `resumed_from` is 0 for a fresh start.
    """

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)
    history: tuple[tuple[int, Mapping[str, float]], ...] = ()
    resumed_from: int = 0


def fit(run: Run, adapter: Adapter, model: Any, request: Request) -> FitResult:
    """Train `model` up to the last step; see `Run.fit`."""
    steps = run.settings.steps or request.steps
    if steps is None:
        raise IncompatibleError(
            "nothing says how many steps to train",
            "set train.steps in the job file, or run.fit(..., steps=...)",
        )
    schedule = Schedule(
        steps=steps,
        log_every=request.log_every,
        validation_every=(request.validation_every or steps) if request.validation is not None else 0,
        checkpoint_every=run.settings.checkpoint_every_steps if run.settings.checkpoint_dir else 0,
        steps_per_execution=model.steps_per_execution,
    )
    source = _resolve(request.dataset_fn, run)
    with StopFlag() as stop:
        return _Loop(run, adapter, model, schedule, stop, source, request.validation).run()


def _resolve(source: Any, run: Run) -> Source:
    """Call `source` with the run when it is a function. Raises IncompatibleError for what is no data."""
    made = source(run) if callable(source) else source
    if not isinstance(made, ArrayData | tf.data.Dataset):
        raise IncompatibleError(
            f"a data set is needed, not {type(made).__name__}",
            "give phalanx.train.data.from_arrays(...), a tf.data.Dataset, or a function of run returning one",
        )
    if isinstance(made, ArrayData) and run.settings.global_batch is None:
        raise IncompatibleError(
            "nothing says how large a global batch is",
            "set train.global_batch in the job file, or phalanx.train.init(global_batch=...)",
        )
    return made


class _Loop:
    """One call of `fit`. The step counts global steps of the job, over all rounds."""

    def __init__(
        self,
        run: Run,
        adapter: Adapter,
        model: Any,
        schedule: Schedule,
        stop: StopFlag,
        source: Source,
        validation: Any,
    ) -> None:
        self._joined = run
        self._adapter = adapter
        self._model = model
        self._schedule = schedule
        self._stop = stop
        self._source = source
        self._validation = _resolve(validation, run) if validation is not None else None
        self._report = run.reporter
        self._step = self._resumed_from = 0
        self._examples = 0
        self._history: list[tuple[int, Mapping[str, float]]] = []
        self._evaluated: Mapping[str, float] = {}
        self._evaluate_batch: Callable[[Any], Any] | None = None

    def run(self) -> FitResult:
        """Restore, train to the end, and say how it went."""
        started = time.monotonic()
        self._adapter.build(self._model, self._batches(0).element_spec)
        self._restore()
        self._check_agreement()
        self._begin()
        if self._step < self._schedule.steps:
            self._train()
        elif self._validation is not None:
            self._evaluate()
        self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
        metrics = self._history[-1][1] if self._history else {}
        self._report.section("done")
        self._report.event(
            Kind.TRAINING_FINISHED, step=self._step, metrics=dict(metrics), seconds=time.monotonic() - started
        )
        return FitResult(self._step, metrics, self._evaluated, tuple(self._history), self._resumed_from)

    def _batches(self, start_step: int) -> tf.data.Dataset:
        """This rank's batches from `start_step` on."""
        if isinstance(self._source, ArrayData):
            settings = self._joined.settings
            assert settings.global_batch is not None
            return self._source.training(
                seed=settings.seed,
                global_batch=settings.global_batch,
                world_size=self._joined.world_size,
                rank=self._joined.rank,
                start_step=start_step,
            )
        return self._source.skip(start_step) if start_step else self._source

    def _restore(self) -> None:
        """Load the newest checkpoint, if there is one, and take its step."""

    def _save(self) -> None:
        """Save a checkpoint of the present step (the chief's work; others return at once)."""

    def _check_agreement(self) -> None:
        """Stop here, with a name, when ranks hold different numbers: later they would only wait for each other."""
        schedule, settings = self._schedule, self._joined.settings
        check_agreement(
            self._joined.strategy,
            self._joined.rank,
            {
                "the step to start from": self._step,
                "steps": schedule.steps,
                "log_every": schedule.log_every,
                "validation_every": schedule.validation_every,
                "steps_per_execution": schedule.steps_per_execution,
                "global_batch": settings.global_batch or 0,
                "the number of weights": int(self._model.count_params()),
            },
        )

    def _begin(self) -> None:
        settings = self._joined.settings
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
            self._report.info(
                f"nothing to train: the checkpoint is at step {self._step} of {self._schedule.steps}"
            )
        else:
            self._report.info(
                f"training from step {self._step} to {self._schedule.steps} on {self._joined.world_size} worker(s)"
            )

    def _train(self) -> None:
        execute = self._make_execute()
        batches = iter(self._batches(self._step))
        board = self._report.board
        self._model.reset_metrics()
        self._report.section("compile")
        # Rates leave the first execution out: it compiles.
        window_start, window_examples = math.nan, 0
        while self._step < self._schedule.steps:
            count = self._schedule.next_steps(self._step)
            if board is not None:
                board.steps_begun(self._step + count)
            logs, examples = self._execute(execute, batches, count)
            self._step += count
            self._examples += count * examples
            window_examples += count * examples
            rate = window_examples / (time.monotonic() - window_start)
            if board is not None:
                board.steps_done(self._step, self._examples)
                board.measured(_loss_of(logs), rate)
            if math.isnan(window_start):
                self._first_execution_done()
            if self._work_at_boundary(rate) or math.isnan(window_start):
                window_start, window_examples = time.monotonic(), 0

    def _execute(self, execute: Callable[[Any, int], Any], batches: Any, count: int) -> tuple[Any, int]:
        """Run `count` steps; returns this rank's logs and the examples of all ranks in one step."""
        try:
            logs, own = execute(batches, count)
        except (StopIteration, tf.errors.OutOfRangeError) as error:
            raise IncompatibleError(
                f"the data set of rank {self._joined.rank} ended after step {self._step}, "
                f"before step {self._schedule.steps}",
                "end it with .repeat(), or train fewer steps",
            ) from error
        if isinstance(self._source, ArrayData):
            return logs, self._joined.settings.global_batch or 0
        return logs, int(own) * self._joined.world_size

    def _first_execution_done(self) -> None:
        self._report.section("step")
        if self._resumed_from:
            self._report.event(Kind.STEP_RESUMED, step=self._step)

    def _work_at_boundary(self, rate: float) -> bool:
        """Log, save and evaluate where the schedule says so; true when time passed that is not training."""
        step, schedule = self._step, self._schedule
        if schedule.logs_at(step):
            self._log(rate)
        if schedule.saves_at(step):
            self._save()
        self._leave_if_asked()
        if schedule.evaluates_at(step):
            self._evaluate()
        return schedule.logs_at(step) or schedule.saves_at(step)

    def _leave_if_asked(self) -> None:
        """On SIGTERM the chief saves and leaves. The others go on until they lose it: leaving at a step of their
        own, they would take the chief's next step, and its checkpoint, away.
        """
        if not self._stop.requested or not self._joined.is_chief or self._step == self._schedule.steps:
            return
        if self._joined.settings.checkpoint_dir is None:
            self._report.info(f"stopped at step {self._step}; no checkpoint directory, nothing saved")
            raise SystemExit(int(ExitCode.TERMINATED))
        self._save()
        self._report.info(f"stopped at step {self._step}; it is saved")
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

    def _read_metrics(self) -> Mapping[str, float]:
        """Metrics over all ranks since the last reading: a collective, so all ranks call it at the same step."""
        metrics = {name: _number(value) for name, value in self._model.get_metrics_result().items()}
        self._model.reset_metrics()
        return metrics

    def _evaluate(self) -> None:
        assert self._validation is not None
        self._report.section("evaluate")
        if self._evaluate_batch is None:
            self._evaluate_batch = self._make_evaluate_batch()
        self._model.reset_metrics()
        for batch in self._validation_batches(self._validation):
            self._evaluate_batch(batch)
            self._leave_if_asked()
        self._evaluated = self._read_metrics()
        self._report.section("step")
        self._report.event(Kind.EVALUATED, step=self._step, metrics=dict(self._evaluated))
        self._report.info(f"step {self._step} validation  {numbers(self._evaluated)}")

    def _validation_batches(self, source: Source) -> tf.data.Dataset:
        if not isinstance(source, ArrayData):
            return source
        return source.evaluation(
            batch=self._joined.settings.global_batch or 1,
            world_size=self._joined.world_size,
            rank=self._joined.rank,
        )

    def _make_execute(self) -> Callable[[Any, int], Any]:
        """A function that takes `count` batches and runs a step on each; returns the logs of the last and its size."""
        strategy = self._joined.strategy
        step = self._weighted(self._adapter.train_step(self._model))

        def on_batch(batch: Any) -> Any:
            logs = strategy.run(step, args=(batch,))
            return _local(strategy, logs), examples_in(batch)

        def on_iterator(batches: Any, count: Any) -> Any:
            def body(done: Any) -> Any:
                strategy.run(step, args=(next(batches),))
                return done + 1

            tf.while_loop(lambda done: done < count - 1, body, (tf.constant(0),))
            return on_batch(next(batches))

        one = self._compiled(on_batch)
        many = self._compiled(on_iterator)

        def execute(batches: Any, count: int) -> Any:
            if count > 1:
                return many(batches, tf.constant(count))
            return one(next(batches))

        return execute

    def _weighted(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`step`, telling the reducer how much this rank's examples count."""
        reducer, source, run = self._adapter.reducer, self._source, self._joined

        def weighted_step(batch: Any) -> Any:
            if isinstance(source, ArrayData):
                weight = order.gradient_weight(run.settings.global_batch or 1, run.world_size, run.rank)
                with reducer.weighted(weight):
                    return step(batch)
            with reducer.counted(examples_in(batch)):
                return step(batch)

        return weighted_step

    def _make_evaluate_batch(self) -> Callable[[Any], Any]:
        """Adds one batch to the metrics of this rank; no collective, so ranks may hold different numbers of batches."""
        strategy, model = self._joined.strategy, self._model
        return self._compiled(lambda batch: strategy.run(model.test_step, args=(batch,)))

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._model.run_eagerly:
            return function
        return tf.function(function, reduce_retracing=True, autograph=False)  # type: ignore[no-any-return]


def _local(strategy: Any, values: Any) -> Any:
    return tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], values)


def _loss_of(logs: Any) -> float:
    """The loss in a step's logs, NaN when there is none; reading it waits until the step is done on the device."""
    values = tf.nest.flatten(logs)
    loss = logs.get("loss") if isinstance(logs, dict) else None
    found = loss if loss is not None else (values[0] if values else math.nan)
    return float(np.mean(found))


def _number(value: Any) -> float:
    """A metric's value as a float; the mean of a metric that has several (one a class)."""
    return float(np.mean(value))
