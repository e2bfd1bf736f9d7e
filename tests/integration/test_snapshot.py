"""A restored model goes on exactly as if it had never stopped; a checkpoint of another model is refused."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.checkpoint.store import list_committed

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.tensorflow


def run(directory: Path, mode: str) -> dict[str, Any]:
    program = [sys.executable, str(PROGRAMS / "snapshot_cases.py"), str(directory), mode]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    found = subprocess.run(program, check=False, capture_output=True, text=True, timeout=200, env=environ)
    assert found.returncode == 0, found.stderr[-4000:]
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], Path]:
    directory = tmp_path_factory.mktemp("cases")
    return run(directory, "first"), run(directory, "resumed"), directory


CASES = (
    "functional",
    "mixed_float16",
    "bfloat16",
    "subclassed",
    "nested_functional",
    "recurrent",
    "two_optimizers",
)


@pytest.mark.parametrize("case", CASES)
def test_a_fresh_process_goes_on_bit_for_bit(
    results: tuple[dict[str, Any], dict[str, Any], Path], case: str
) -> None:
    first, resumed, _ = results
    assert len(first[case]["losses"]) == 3
    assert resumed[case] == first[case]


def test_the_manifest_names_every_variable(results: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    (listed,) = list_committed(results[2] / "mixed_float16")
    assert listed.manifest is not None
    paths = {entry.path: (entry.dtype, entry.shape) for entry in listed.manifest.variables}
    assert paths["model/sequential/dense_1/kernel"] == ("float32", (8, 1))
    assert paths["model/seed_generator/seed_generator_state"][1] == (2,)
    assert paths["optimizer/loss_scale_optimizer/dynamic_scale"] == ("float32", ())
    assert "optimizer/adam/sequential/dense/kernel/momentum" in paths
    assert not [path for path in paths if "mae" in path or "loss/" in path]
    assert listed.manifest.versions.keys() == {"phalanx", "python", "numpy", "tensorflow", "keras"}
    assert listed.manifest.data_position == {"next": 3}


@pytest.mark.parametrize(
    ("case", "count", "words"),
    [
        (
            "other_width",
            "17 of 23",
            "model/dense/bias: float32 of shape [9] in the model, float32 of shape [16] in the checkpoint",
        ),
        ("other_optimizer", "16 of 25", "optimizer/adam/dense/bias/momentum: the checkpoint has it"),
    ],
)
def test_a_checkpoint_of_a_different_model_is_refused(
    results: tuple[dict[str, Any], dict[str, Any], Path], case: str, count: str, words: str
) -> None:
    refused = results[1][case]
    assert refused["class"] == "CheckpointMismatchError"
    assert refused["message"].startswith("this checkpoint is of a different model: ")
    assert count in refused["message"]
    assert words in refused["message"]
    assert "more" in refused["message"]
    assert "another checkpoint.dir" in refused["hint"]


def test_a_model_without_variables_is_told(results: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    assert results[1]["unbuilt"]["class"] == "CheckpointError"
    assert "has no variables yet" in results[1]["unbuilt"]["message"]


def test_each_rank_saves_and_restores_without_the_other(tmp_path: Path) -> None:
    with socket.socket() as first, socket.socket() as second:
        for held in (first, second):
            held.bind(("127.0.0.1", 0))
        workers = [f"127.0.0.1:{held.getsockname()[1]}" for held in (first, second)]
    children = []
    for rank in (0, 1):
        environ = {
            **os.environ,
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            ),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
            "PYTHONPATH": str(PROGRAMS.parents[1]),
        }
        program = [sys.executable, str(PROGRAMS / "snapshot_ranks.py"), str(tmp_path)]
        children.append(
            subprocess.Popen(program, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    try:
        outputs = [child.communicate(timeout=120) for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], outputs[0][1][-3000:] + outputs[1][1][-3000:]
    chief, other = (json.loads(out.splitlines()[-1]) for out, _ in outputs)
    assert chief == other
    assert chief["after save"] == chief["at 2"] == chief["restored"]
    assert chief["at 4"] == chief["again at 4"] != chief["at 2"]
