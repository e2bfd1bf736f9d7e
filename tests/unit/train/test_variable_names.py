"""Variables get the same name in every process that builds the same model, and never the same name twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.variable_names import counted_base, from_owner, numbered, slot_paths, stable_paths


@pytest.mark.parametrize(
    ("name", "class_name", "base"),
    [
        ("dense", "Dense", "dense"),
        ("dense_12", "Dense", "dense"),
        ("multi_head_attention_3", "MultiHeadAttention", "multi_head_attention"),
        ("conv2d_1", "Conv2D", "conv2d"),
        ("lstm_1", "LSTM", "lstm"),
        ("gru_cell", "GRUCell", "gru_cell"),
        ("rm_sprop", "RMSprop", "rm_sprop"),
        ("seed_generator_4", "SeedGenerator", "seed_generator"),
        ("encoder", "Dense", None),
        ("dense_a", "Dense", None),
        ("my_dense_1", "Dense", None),
        ("dense_1", "MyDense", None),
    ],
)
def test_counted_names_are_told_from_given_ones(name: str, class_name: str, base: str | None) -> None:
    assert counted_base(name, class_name) == base


def test_a_model_built_second_has_the_names_of_the_first() -> None:
    first = ["model/dense/kernel", "model/dense_1/kernel", "head/kernel"]
    second = ["model_1/dense_2/kernel", "model_1/dense_3/kernel", "head/kernel"]
    counted = {"model": "model", "dense": "dense", "dense_1": "dense"}
    counted_later = {"model_1": "model", "dense_2": "dense", "dense_3": "dense"}
    assert stable_paths(first, counted) == first
    assert stable_paths(second, counted_later) == first


def test_given_names_with_numbers_stay() -> None:
    assert stable_paths(["block_7/w", "block_3/w"], {}) == ["block_7/w", "block_3/w"]


def test_counting_starts_anew_under_each_parent() -> None:
    paths = ["a/dense_5/w", "b/dense_6/w", "b/dense_7/w"]
    counted = {"dense_5": "dense", "dense_6": "dense", "dense_7": "dense"}
    assert stable_paths(paths, counted) == ["a/dense/w", "b/dense/w", "b/dense_1/w"]


def test_equal_paths_are_numbered() -> None:
    assert stable_paths(["l/a", "l/b", "l/a", "l/a"], {}) == ["l/a", "l/b", "l/a#2", "l/a#3"]
    assert numbered(["a", "a#2", "a"]) == ["a", "a#2", "a#3"]


def test_slots_find_the_variable_that_they_belong_to() -> None:
    model = [("dense_1/kernel", "dense/kernel"), ("dense_1/kernel_x", "dense/kernel_x")]
    slots = ["adam/iteration", "adam/dense_1_kernel_momentum", "adam/dense_1_kernel_x_velocity", "lr"]
    assert slot_paths(slots, model) == [
        "adam/iteration",
        "adam/dense/kernel/momentum",
        "adam/dense/kernel_x/velocity",
        "lr",
    ]


def test_scopes_that_were_open_are_dropped() -> None:
    owners = {"adam", "loss_scale_optimizer"}
    assert from_owner("loss_scale_optimizer/adam/iteration", owners) == "adam/iteration"
    assert from_owner("adam/iteration", owners) == "adam/iteration"
    assert from_owner("scope/adam/adam", owners) == "adam/adam"
    assert from_owner("elsewhere/x", owners) == "elsewhere/x"


segments = st.sampled_from(["dense", "dense_1", "dense_2", "dense_1_1", "w", "block_1"])
paths = st.lists(st.lists(segments, min_size=1, max_size=3).map("/".join), max_size=8)


@given(paths, st.dictionaries(segments, st.sampled_from(["dense", "block", "dense_1"])))
def test_names_are_unique_whatever_the_paths(raw: list[str], counted: dict[str, str]) -> None:
    stable = stable_paths(raw, counted)
    assert len(set(stable)) == len(raw)
