"""Two ranks against one process on the union of their batches, model by model.

All models are trained by one pair of processes and one single process (programs/training_cases.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gang import start_gang

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).parent / "programs" / "training_cases.py"
Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Outcome:
    """What one process wrote down: arrays and facts of each case."""

    arrays: Arrays
    facts: dict[str, Any]

    def of(self, case: str) -> Arrays:
        return {name: array for name, array in self.arrays.items() if name.startswith(f"{case}/")}


@dataclass(frozen=True)
class Trained:
    """The outcomes of both ranks and of the single process."""

    rank0: Outcome
    rank1: Outcome
    single: Outcome
    directory: Path


def read(directory: Path, rank: int) -> Outcome:
    with np.load(directory / f"rank-{rank}.npz") as arrays:
        return Outcome(dict(arrays), json.loads((directory / f"rank-{rank}.json").read_text()))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    directory = tmp_path_factory.mktemp("trained")
    for name in ("gang", "single"):
        (directory / name).mkdir()
    gang = start_gang([str(PROGRAM), str(directory / "gang")], 2, directory / "run")
    try:
        single = subprocess.run(
            [sys.executable, str(PROGRAM), str(directory / "single")],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ,
            check=False,
        )
        codes = gang.wait(300)
    finally:
        gang.kill()
    assert single.returncode == 0, single.stdout + single.stderr
    assert codes == [0, 0], gang.output()
    return Trained(
        read(directory / "gang", 0), read(directory / "gang", 1), read(directory / "single", 0), directory
    )


# Case -> largest allowed difference of weights and optimizer state to the single process. Half precision
# rounds sums of other lengths differently; everything else is within float32 rounding.
CASES = {
    "functional_sgd": 1e-6,
    "functional_adam_clipped": 1e-6,
    "several_steps_an_execution": 1e-6,
    "sequential_unbuilt": 1e-6,
    "own_train_step": 1e-6,
    "uneven_shares": 1e-6,
    "sparse_gradients": 1e-6,
    "synchronized_batch_norm": 1e-6,
    "compiled_by_xla": 1e-6,
    "plain_dataset": 1e-6,
    "stock_fit": 1e-6,
    "stock_fit_ragged_share": 1e-6,
    "train_on_batch": 1e-6,
    "first_fit": 1e-6,
    "bfloat16": 1e-2,
    "float16_overflow_on_one_rank": 1e-3,
}


@pytest.mark.parametrize("case", [*CASES, "dropout", "finished_already"])
def test_ranks_end_with_equal_weights_bit_for_bit(trained: Trained, case: str) -> None:
    own, other = trained.rank0.of(case), trained.rank1.of(case)
    assert own
    assert own.keys() == other.keys()
    for name in own:
        np.testing.assert_array_equal(own[name], other[name], err_msg=name)


@pytest.mark.parametrize(("case", "tolerance"), CASES.items())
def test_ranks_end_where_one_process_does(trained: Trained, case: str, tolerance: float) -> None:
    own, single = trained.rank0.of(case), trained.single.of(case)
    assert own.keys() == single.keys()
    for name in own:
        np.testing.assert_allclose(own[name], single[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("float16")])
def test_metrics_are_those_of_all_ranks(trained: Trained, case: str) -> None:
    assert trained.rank0.facts[case] == trained.rank1.facts[case]
    own, single = numbers(trained.rank0.facts[case]), numbers(trained.single.facts[case])
    np.testing.assert_allclose(own, single, atol=1e-3 if case == "bfloat16" else 1e-6)


def numbers(value: Any) -> list[float]:
    """All numbers in nested facts, in order."""
    if isinstance(value, dict):
        return [number for key in value for number in numbers(value[key])]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [float(value)]


def test_the_board_counts_on_from_the_steps_that_a_script_restored(trained: Trained) -> None:
    assert trained.rank0.facts["steps_before_this_process"] == 44


def test_an_overflow_on_one_rank_makes_all_skip_the_step(trained: Trained) -> None:
    integers = [
        int(array) for array in trained.rank0.of("float16_overflow_on_one_rank").values() if array.shape == ()
    ]
    # Examples 0..51 come in order, 16 a step: example 3 is in 4 of the 12 steps.
    assert 8 in integers, "the inner optimizer counts the steps that were not skipped"
    assert any(integer == 2**15 / 2**4 for integer in integers), "the scale was halved once a skipped step"


def test_every_rank_drops_other_units(trained: Trained) -> None:
    own, other = trained.rank0.arrays["own/mask"], trained.rank1.arrays["own/mask"]
    assert np.mean(own != other) > 0.2
    assert 0.2 < np.mean(own == 0) < 0.8
    np.testing.assert_array_equal(
        own, trained.single.arrays["own/mask"], "rank 0 draws what one process does"
    )


def test_a_finished_job_trains_no_further(trained: Trained) -> None:
    fact = trained.rank0.facts["finished_already"]
    assert (fact["resumed_from"], fact["step"], fact["history"]) == (12, 12, [])
    assert fact["validation"] == trained.rank0.facts["first_fit"]["validation"]
    first, second = trained.rank0.of("first_fit"), trained.rank0.of("finished_already")
    np.testing.assert_array_equal(first["first_fit/weight-0"], second["finished_already/weight-0"])


def test_a_saved_model_is_a_plain_one(trained: Trained) -> None:
    program = (
        "import sys, keras, numpy as np; m = keras.models.load_model(sys.argv[1]); "
        "x = np.random.default_rng(0).normal(size=(52, 6)).astype('float32'); "
        "np.save(sys.argv[2], m.predict(x, verbose=0)); "
        "print(type(m).__module__, '_make_function' in vars(m), 'apply' in vars(m.optimizer))"
    )
    out = trained.directory / "predicted.npy"
    saved = trained.directory / "gang" / "saved.keras"
    loaded = subprocess.run(
        [sys.executable, "-c", program, str(saved), str(out)], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split()[-2:] == ["False", "False"]
    assert loaded.stdout.split()[-3].startswith("keras.")
    np.testing.assert_allclose(np.load(out), trained.rank0.arrays["stock_fit/predicted"], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "accumulation": "gradient_accumulation_steps=2",
        "jit": "train.xla: true",
        "batch_norm": "synchronized=True",
        "scope": "with run.scope()",
        "xla": "OwnStep has its own",
        "no_model": "not builtins.str",
        "not_compiled": "model.compile(",
        "no_steps": "train.steps in the job file",
        "no_data": "not list",
        "no_global_batch": "train.global_batch",
    }.items(),
)
def test_what_cannot_work_is_refused_with_the_way_out(trained: Trained, name: str, words: str) -> None:
    for outcome in (trained.rank0, trained.rank1):
        assert words in outcome.facts["refusals"][name]


def test_one_process_may_do_what_several_cannot(trained: Trained) -> None:
    allowed = {"accumulation", "jit", "batch_norm", "scope"}
    assert not allowed & trained.single.facts["refusals"].keys()
    assert "no_steps" in trained.single.facts["refusals"]


def test_ranks_with_different_numbers_are_told_at_once(trained: Trained) -> None:
    for outcome in (trained.rank0, trained.rank1):
        assert "ranks differ in log_every (rank 0: 5, rank 1: 6)" in outcome.facts["disagreement"]


def test_a_data_set_that_ends_is_told(trained: Trained) -> None:
    message = trained.single.facts["data_ends_too_early"]
    assert "rank 0 ended after step 3" in message
    assert ".repeat()" in message
