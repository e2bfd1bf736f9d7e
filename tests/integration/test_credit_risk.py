"""The credit-risk workload on the real loans: vocabulary, preparation, model, metrics over all workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gang import start_gang
from phalanx.contract import EVENTS_FILE
from phalanx.errors import IncompatibleError
from phalanx.events.kinds import Kind
from phalanx.events.log import EventReader
from phalanx.workloads.credit_risk import model, prepare, vocabulary

pytestmark = pytest.mark.tensorflow

PREPARE = ["-m", "phalanx.workloads.credit_risk.prepare", "--cache"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the prepared loans, made by three processes at once."""
    directory = tmp_path_factory.mktemp("cache")
    asked = [subprocess.Popen([sys.executable, *PREPARE, str(directory)]) for _ in range(3)]
    assert [process.wait(200) for process in asked] == [0, 0, 0]
    return directory


def test_many_may_prepare_at_once_and_one_file_is_left(cache: Path) -> None:
    assert sorted(path.suffix for path in cache.iterdir() if path.name != ".lock") == [".npz"]


def test_prepared_loans_are_the_real_ones_without_cut_or_unknown_words(cache: Path) -> None:
    loans = prepare.prepared(cache)
    assert len(loans.training_bad) + len(loans.validation_bad) == 9857
    assert int(loans.training_bad.sum()) + int(loans.validation_bad.sum()) == 517
    assert 0.18 < len(loans.validation_bad) / 9857 < 0.22
    assert loans.vocabulary[:5] == vocabulary.SPECIAL_TOKENS
    unknown = vocabulary.SPECIAL_TOKENS.index("[UNK]")
    for tokens in (loans.training_tokens, loans.validation_tokens):
        assert (tokens[:, 0] == vocabulary.SPECIAL_TOKENS.index("[CLS]")).all()
        assert not (tokens == unknown).any()
    weights = loans.training_weights()
    assert weights[loans.training_bad == 1].sum() == pytest.approx(
        weights[loans.training_bad == 0].sum(), rel=1e-4
    )


def test_other_settings_have_another_key() -> None:
    keys = {prepare.Settings().key(), prepare.Settings(vocabulary_size=300).key()}
    assert len(keys) == 2
    assert prepare.Settings().key() in keys


def test_the_vocabulary_cuts_what_it_does_not_hold_whole_and_long_texts_are_refused() -> None:
    learnt = vocabulary.learn(["low rate", "low limit", "high rate"] * 20, 60)
    assert learnt[:5] == list(vocabulary.SPECIAL_TOKENS)
    rows = vocabulary.encode(["low rate", "rat"], learnt, 8)
    assert rows.dtype == np.int32
    assert [learnt[number] for number in rows[0][:4]] == ["[CLS]", "low", "rate", "[SEP]"]
    assert (rows[1] != 0).sum() > 3
    with pytest.raises(IncompatibleError, match="more than the sequence length of 3"):
        vocabulary.encode(["low rate"], learnt, 3)


def weights_of(size: model.Size, vocabulary_size: int, positions: int) -> int:
    """Number of weights of a BERT encoder without pooler, from its shape (Devlin et al. 2019, section 3)."""
    hidden, inner = size.hidden_dim, size.intermediate_dim
    embeddings = (vocabulary_size + positions + 2) * hidden + 2 * hidden
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * inner + hidden + inner + 4 * hidden
    return embeddings + size.num_layers * layer


def test_sizes_are_the_published_ones() -> None:
    """4.4, 110 and 340 million with BERT's own 30,522 words and 512 positions, as the papers round them."""
    millions = {name: weights_of(size, 30_522, 512) / 1e6 for name, size in model.SIZES.items()}
    assert millions == pytest.approx({"tiny": 4.4, "base": 110, "large": 340}, rel=0.02)
    for size in (model.SIZES["tiny"], model.SIZES["large"]):
        built = model.build(size, vocabulary_size=100, sequence_length=24, dropout=0.1)
        assert built.count_params() == weights_of(size, 100, 24) + size.hidden_dim + 1


def test_two_workers_train_and_report_figures_over_all_loans(cache: Path, tmp_path: Path) -> None:
    program = ["-m", "phalanx.workloads.credit_risk.train", "--cache", str(cache), "--validate-every", "20"]
    gang = start_gang(program, 2, tmp_path / "run", steps=20, global_batch=32, seed=1)
    assert gang.wait(200) == [0, 0], gang.output()
    events = list(EventReader(tmp_path / "run" / EVENTS_FILE).read_new())
    evaluated = [event.data["metrics"] for event in events if event.kind is Kind.EVALUATED]
    assert len(evaluated) == 1
    assert set(evaluated[0]) == {"loss", "auc", "average_precision"}
    assert 0.3 < evaluated[0]["auc"] < 0.9
