"""The loans as text, the split, the weights: on a few rows, without the data set."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.errors import IncompatibleError
from phalanx.workloads.credit_risk import data

ROW: dict[str, Any] = {
    "rownames": 17,
    "funded_amnt": 16100,
    "term": "term_36",
    "int_rate": 13.99,
    "sub_grade": "C4",
    "addr_state": "CT",
    "verification_status": "Not_Verified",
    "annual_inc": 35000.0,
    "emp_length": "emp_ge_10",
    "delinq_2yrs": 0,
    "inq_last_6mths": 0,
    "revol_util": 67.4,
    "acc_now_delinq": 0,
    "open_il_6m": 1,
    "open_il_12m": 0,
    "open_il_24m": 0,
    "total_bal_il": 1099,
    "all_util": 48,
    "inq_fi": 0,
    "inq_last_12m": 3,
    "delinq_amnt": 0,
    "num_il_tl": 3,
    "total_il_high_credit_limit": 13193,
    "Class": "good",
}


def loan(**changes: Any) -> data.Loan:
    return data.loans_of([{**ROW, **changes}])[0]


def test_neither_the_outcome_nor_the_row_number_is_a_field() -> None:
    assert set(loan().fields) == set(ROW) - {"Class", "rownames"}
    assert data.text_of(loan()) == data.text_of(loan(Class="bad", rownames=99))
    assert (loan().bad, loan(Class="bad").bad) == (False, True)


def test_every_column_is_written_in_a_fixed_place() -> None:
    words = data.text_of(loan()).split()
    changed = data.text_of(loan(addr_state="CA", int_rate=16.0)).split()
    differ = [(old, new) for old, new in zip(words, changed, strict=True) if old != new]
    assert differ == [("rateunder16", "rateover16"), ("statect", "stateca")]


def test_a_number_says_of_each_bound_on_which_side_it_is() -> None:
    income = data.Number("annual_inc", "income", (45, 60), 1000)
    assert income.write(44_999.99) == "incomeunder45k incomeunder60k"
    assert income.write(45_000) == "incomeover45k incomeunder60k"
    assert income.write(1e9) == "incomeover45k incomeover60k"


def test_no_word_belongs_to_two_columns() -> None:
    """Else the model could not tell them apart: position aside, a word is all it sees."""
    spelt = [column.word for column in data.COLUMNS if isinstance(column, data.Number)]
    assert len(set(spelt)) == len(spelt)


def test_names_lose_the_prefix_of_the_data_set() -> None:
    words = data.text_of(loan()).split()
    assert {"gradec", "term36", "incomenotverified", "employedge10", "statect"} <= set(words)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_the_validation_part_can_be_nothing_or_all(share: float) -> None:
    assert data.in_validation(loan(), share) == bool(share)


def test_the_split_depends_on_the_fields_alone_and_keeps_its_share() -> None:
    loans = [loan(annual_inc=30_000.0 + number) for number in range(5000)]
    kept = [data.in_validation(one) for one in loans]
    assert 0.18 < sum(kept) / len(kept) < 0.22
    reordered = [data.in_validation(one) for one in reversed(loans)]
    assert reordered[::-1] == kept
    assert [data.in_validation(loan(annual_inc=30_000.0 + n, Class="bad")) for n in range(5000)] == kept


def test_the_split_of_a_known_loan_never_changes() -> None:
    """Otherwise figures of two releases would not be comparable."""
    kept = [data.in_validation(loan(annual_inc=30_000.0 + number)) for number in range(12)]
    assert "".join("V" if one else "." for one in kept) == ".V....V....."


def test_class_weights_give_both_classes_the_same_sum() -> None:
    bad = [True] * 5 + [False] * 95
    good_weight, bad_weight = data.class_weights(bad)
    assert bad_weight * 5 == pytest.approx(good_weight * 95)
    assert bad_weight * 5 + good_weight * 95 == pytest.approx(100)


@pytest.mark.parametrize("bad", [[True, True], [False], []])
def test_a_missing_class_is_told(bad: list[bool]) -> None:
    with pytest.raises(ValueError, match="a class is empty"):
        data.class_weights(bad)


def test_other_data_is_told() -> None:
    with pytest.raises(IncompatibleError, match=r"columns missing: \['int_rate'\]"):
        data.loans_of([{key: value for key, value in ROW.items() if key != "int_rate"}])
    with pytest.raises(IncompatibleError, match="Class: 'late'"):
        data.loans_of([{**ROW, "Class": "late"}])
