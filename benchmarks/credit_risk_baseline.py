"""The figure to beat: logistic regression on the fields and the split of `phalanx.workloads.credit_risk`.

    python benchmarks/credit_risk_baseline.py [--quick] [--out DIR]

Two models: on the raw fields (numbers standardised, names one-hot), and on the words that BERT reads: this
tells what writing loans as text costs. Classes are balanced; the penalty is chosen by five-fold
cross-validation inside the training part. `--quick` tries one penalty only.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from phalanx.workloads.credit_risk import data

STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)  # scikit-learn's C: smaller is stronger


def on_fields() -> Any:
    """Loans to scores by their raw fields."""
    numbers = [column.column for column in data.COLUMNS if isinstance(column, data.Number)]
    names = [column.column for column in data.COLUMNS if isinstance(column, data.Name)]
    columns = make_column_transformer(
        (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), names)
    )
    return make_pipeline(
        FunctionTransformer(lambda loans: DataFrame([loan.fields for loan in loans])), columns
    )


def on_words() -> Any:
    """Loans to scores by the words of their text."""
    return make_pipeline(CountVectorizer(analyzer=lambda loan: data.text_of(loan).split()))


def standard_error(auc: float, bad: int, good: int) -> float:
    """Of an AUC measured on so many loans: Hanley and McNeil, Radiology 143 (1982), 29-36."""
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (bad - 1) * (q1 - auc**2) + (good - 1) * (q2 - auc**2)
    return math.sqrt(variance / (bad * good))


def measure(features: Any, strengths: Sequence[float]) -> dict[str, float]:
    """Fit on the training part, score on the validation part."""
    loans = data.load_loans()
    training = [loan for loan in loans if not data.in_validation(loan)]
    validation = [loan for loan in loans if data.in_validation(loan)]
    model = make_pipeline(features, LogisticRegression(class_weight="balanced", max_iter=5000))
    search = GridSearchCV(model, {"logisticregression__C": list(strengths)}, scoring="roc_auc", cv=5)
    search.fit(training, [loan.bad for loan in training])
    bad = [loan.bad for loan in validation]
    scores = search.predict_proba(validation)[:, 1]
    auc = float(roc_auc_score(bad, scores))
    return {
        "auc": auc,
        "auc_standard_error": standard_error(auc, sum(bad), len(bad) - sum(bad)),
        "average_precision": float(average_precision_score(bad, scores)),
        "cross_validated_auc": float(search.best_score_),
        "penalty_c": search.best_params_["logisticregression__C"],
    }


def main() -> None:
    """Print the figures; with --out also write them as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one penalty only, about 5 s")
    parser.add_argument("--out", type=Path, help="directory for credit_risk_baseline.json")
    options = parser.parse_args()
    strengths = STRENGTHS[2:3] if options.quick else STRENGTHS
    figures = {"fields": measure(on_fields(), strengths), "words": measure(on_words(), strengths)}
    print("credit risk, logistic regression on")
    print(f"  {'':<20} {'fields':>8} {'words':>8}")
    for name in figures["fields"]:
        print(f"  {name:<20} {figures['fields'][name]:>8.4f} {figures['words'][name]:>8.4f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "credit_risk_baseline.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
