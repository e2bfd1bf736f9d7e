"""What `run.fit` costs a step, beside a bare MultiWorkerMirroredStrategy loop written by hand.

    python benchmarks/step_overhead.py [--quick] [--out DIR]

Both train the same model on the same batches with two workers. Pairs of fresh gangs run one after the other,
bare and `fit` in turn; each gives the mean step time of every window of steps after the compilation. The
figure is the median over the windows, and the ratio the median over the pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from phalanx.contract import EVENTS_FILE, WorkerEnv
from phalanx.events.kinds import Kind
from phalanx.events.log import EventReader

WORKERS = 2
GLOBAL_BATCH = 64
TIMEOUT_S = 180
WINDOWS_FILE = "windows.json"


def model_and_data(name: str) -> tuple[Any, Any, Any]:
    """A compiled model with x and y: "mlp" steps in a few milliseconds, "bert" is BERT-Tiny on 24 tokens."""
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (1024, 1)).astype("float32")
    if name == "mlp":
        x: Any = rng.normal(size=(1024, 32)).astype("float32")
        layers = [keras.layers.Dense(128, activation="relu"), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((32,)), *layers])
    else:
        from phalanx.workloads.credit_risk.model import SIZES, build

        x = rng.integers(5, 200, (1024, 24)).astype("int32")
        model = build(SIZES["tiny"], vocabulary_size=200, sequence_length=24, dropout=0.1)
    model.compile(keras.optimizers.Adam(1e-4), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model, x, y


def bare_worker(name: str, windows: int, window: int) -> list[float]:
    """The loop that a careful person writes by hand; milliseconds a step of each window."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model, x, y = model_and_data(name)
        model.optimizer.build(model.trainable_variables)
    rank, per_worker = strategy.cluster_resolver.task_id, GLOBAL_BATCH // WORKERS
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shard(WORKERS, rank)
    batches = iter(dataset.shuffle(len(x), seed=0).repeat().batch(per_worker).prefetch(2))

    def replica_step(examples: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.loss(labels, model(examples, training=True)) / WORKERS
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def step(examples: Any, labels: Any) -> Any:
        return strategy.experimental_local_results(strategy.run(replica_step, args=(examples, labels)))[0]

    taken = []
    float(step(*next(batches)))
    for _ in range(windows):
        started = time.monotonic()
        for _ in range(window):
            loss = step(*next(batches))
        float(loss)
        taken.append(1000 * (time.monotonic() - started) / window)
    return taken


def fit_worker(name: str, windows: int, window: int) -> None:
    """The same through `run.fit`; the launcher reads the rate of each window from the events."""
    from phalanx import train

    run = train.init()
    with run.scope():
        model, x, y = model_and_data(name)
    run.fit(model, train.data.from_arrays(x, y), steps=(windows + 1) * window, log_every=window)


def worker(kind: str, name: str, windows: int, window: int, directory: Path) -> None:
    """One of the two processes. Leaves without TensorFlow's exit handlers, which can wait for the peer."""
    if kind == "fit":
        fit_worker(name, windows, window)
    else:
        (directory / WINDOWS_FILE).write_text(json.dumps(bare_worker(name, windows, window)))
    sys.stdout.flush()
    os._exit(0)


def environments(directory: Path) -> list[dict[str, str]]:
    """What an agent would give each worker."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(WORKERS)]
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    result = []
    for rank in range(WORKERS):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        told = WorkerEnv(
            run_dir=str(directory),
            job="step-overhead",
            job_hash="",
            round=1,
            rank=rank,
            world_size=WORKERS,
            local_rank=rank,
            fence="",
            checkpoint_dir=str(directory / "checkpoints"),
            checkpoint_every_steps=1_000_000,
            checkpoint_keep=1,
            grace_s=5.0,
            global_batch=GLOBAL_BATCH,
        )
        result.append(
            {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_CONFIG": json.dumps(task), **told.to_env()}
        )
    return result


def gang(kind: str, name: str, windows: int, window: int) -> list[float]:
    """Run two workers to their end; milliseconds a step of each window on the chief."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        own = [sys.executable, __file__, "--worker", kind, name, str(windows), str(window), temporary]
        log = (directory / "log").open("w+")
        workers = [subprocess.Popen(own, env=env, stdout=log, stderr=log) for env in environments(directory)]
        try:
            codes = [process.wait(TIMEOUT_S) for process in workers]
        finally:
            for process in workers:
                process.kill()
                process.wait(10)
        if any(codes):
            log.seek(0)
            raise SystemExit(f"a worker of the {kind} gang left with {codes}:\n{log.read()[-3000:]}")
        if kind == "bare":
            return list(json.loads((directory / WINDOWS_FILE).read_text()))
        return [
            1000 * GLOBAL_BATCH / event.data["examples_per_s"]
            for event in EventReader(directory / EVENTS_FILE).read_new()
            if event.kind is Kind.PROGRESS and event.data["examples_per_s"] and event.data["step"] > window
        ]


def measure(name: str, pairs: int, windows: int, window: int) -> dict[str, float]:
    """Median milliseconds a step of both, and the median ratio of the pairs."""
    bare, fit, ratios = [], [], []
    for pair in range(pairs):
        order = ("bare", "fit") if pair % 2 == 0 else ("fit", "bare")
        taken = {kind: statistics.median(gang(kind, name, windows, window)) for kind in order}
        bare.append(taken["bare"])
        fit.append(taken["fit"])
        ratios.append(taken["fit"] / taken["bare"])
    return {
        "bare_ms": statistics.median(bare),
        "fit_ms": statistics.median(fit),
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
    }


def main() -> None:
    """Print the table; with --out also write it as JSON."""
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one pair with few steps")
    parser.add_argument("--out", type=Path, help="directory for step_overhead.json")
    options = parser.parse_args()
    pairs, windows = (1, 3) if options.quick else (5, 8)
    figures = {name: measure(name, pairs, windows, window) for name, window in (("mlp", 100), ("bert", 10))}
    print(f"a step of run.fit beside a bare loop, 2 workers, medians of {pairs} pair(s)")
    print(f"  {'model':<6} {'bare ms':>8} {'fit ms':>8} {'ratio':>6}  least..most")
    for name, row in figures.items():
        spread = f"{row['ratio_least']:.2f}..{row['ratio_most']:.2f}"
        print(f"  {name:<6} {row['bare_ms']:>8.2f} {row['fit_ms']:>8.2f} {row['ratio']:>6.2f}  {spread}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "step_overhead.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
