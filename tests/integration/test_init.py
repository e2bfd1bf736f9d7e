"""`init()` and the ends of `fit` in one process without an agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gang import start_gang
from phalanx.checkpoint.store import list_committed
from phalanx.contract import ExitCode

pytestmark = pytest.mark.tensorflow

MODEL = """
import os, sys, signal, numpy as np, phalanx.train
run = phalanx.train.init(global_batch=4, checkpoint_dir=sys.argv[1] if len(sys.argv) > 1 else None)
import keras
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
def batches():
    for step in range(10_000):
        if step == 20:
            os.kill(os.getpid(), signal.SIGTERM)
        yield np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
import tensorflow as tf
spec = (tf.TensorSpec((4, 3)), tf.TensorSpec((4, 1)))
run.fit(model, tf.data.Dataset.from_generator(batches, output_signature=spec), steps=10_000)
"""


def python(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
        check=False,
    )


def test_init_twice_gives_the_same_run_and_sets_precision_and_seed() -> None:
    done = python(
        "import phalanx.train as t; run = t.init(seed=3, precision='mixed_bfloat16', steps=7);"
        "import keras, numpy;"
        "print(t.init() is run, run.rank, run.world_size, run.round, run.is_chief, run.settings.steps,"
        "keras.config.dtype_policy().name, numpy.random.randint(10**9))"
        "\nassert isinstance(run, t.Run) and isinstance(run.settings, t.Settings) and t.FitResult"
    )
    assert done.returncode == 0, done.stderr
    expected = "True 0 1 0 True 7 mixed_bfloat16"
    assert done.stdout.strip().rsplit(" ", 1)[0] == expected


def test_several_workers_without_an_agent_are_refused() -> None:
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    done = python("import phalanx.train as t; t.init()", TF_CONFIG=json.dumps(config))
    assert "TF_CONFIG names 2 workers" in done.stderr
    assert "phalanx run" in done.stderr


def test_an_agent_of_another_version_is_told() -> None:
    done = python("import phalanx.train as t; t.init()", PHALANX_WORKER_RUN_DIR='"/tmp"')
    assert "the same version of phalanx" in done.stderr


def test_another_backend_of_keras_is_told() -> None:
    done = python("import keras; keras.backend.backend = lambda: 'jax'; import phalanx.train as t; t.init()")
    assert "KERAS_BACKEND=tensorflow" in done.stderr


def test_sigterm_saves_the_step_and_leaves(tmp_path: Path) -> None:
    done = python(MODEL, str(tmp_path / "checkpoints"))
    assert done.returncode == ExitCode.PREEMPTED, done.stderr
    (saved,) = list_committed(tmp_path / "checkpoints")
    assert f"stopped at step {saved.step}, which is saved" in done.stdout


def test_sigterm_without_a_checkpoint_directory_is_told() -> None:
    done = python(MODEL)
    assert done.returncode == ExitCode.TERMINATED, done.stderr
    assert "nothing is saved" in done.stdout


def test_tensorflow_in_use_before_init_is_told(tmp_path: Path) -> None:
    program = tmp_path / "late.py"
    program.write_text("import tensorflow as tf; tf.zeros(()); import phalanx.train as t; t.init()")
    gang = start_gang([str(program)], 2, tmp_path / "run")
    assert gang.wait(60) == [1, 1]
    assert gang.output().count("TensorFlow was already in use") == 2


def test_private_names_that_are_gone_are_told() -> None:
    done = python(
        "import keras\n"
        "from keras.src.backend.tensorflow.trainer import TensorFlowTrainer as T\n"
        "del T._make_function\n"
        "import phalanx.train as t\n"
        "try: t.init()\n"
        "except Exception as e: print(e)\n"
        "from phalanx.train import private_tf\n"
        "private_tf.self_test()\n"
        "del private_tf.CollectiveAllReduceExtended._enable_check_health\n"
        "try: private_tf.self_test()\n"
        "except Exception as e: print(e)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "lacks Model._make_function" in done.stdout
    assert "install keras 3.15" in done.stdout
    assert "lacks CollectiveAllReduceExtended._enable_check_health" in done.stdout


def test_ranks_that_differ_are_told_by_name() -> None:
    done = python(
        "from phalanx.train.agreement import disagreement as d\n"
        "print(d(['steps', 'log_every'], [[5, 1], [5, 2], [5, 1]]) + '|' + d(['steps'], [[5], [5]]))"
    )
    assert done.stdout.strip() == "ranks differ in log_every (rank 0: 1, rank 1: 2, rank 2: 1)|"
