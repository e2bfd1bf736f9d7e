"""The figure to beat: logistic regression on the fields and the split of `phalanx.workloads.credit_risk`.

    python benchmarks/credit_risk_baseline.py [--quick] [--out DIR]

Numbers are standardised, names are one-hot, classes are balanced; the strength of the penalty is chosen by
cross-validation inside the training part. `--quick` tries one strength only.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from phalanx.workloads.credit_risk import data

STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)  # scikit-learn's C: smaller is stronger


def table(loans: Sequence[data.Loan]) -> pd.DataFrame:
    """The raw fields, one column each."""
    return pd.DataFrame([dict(loan.fields) for loan in loans])


def measure(strengths: Sequence[float]) -> dict[str, float]:
    """Fit on the training part, score on the validation part."""
    loans = data.load_loans()
    training = [loan for loan in loans if not data.in_validation(loan)]
    validation = [loan for loan in loans if data.in_validation(loan)]
    numbers = [column.column for column in data.COLUMNS if isinstance(column, data.Number)]
    names = [column.column for column in data.COLUMNS if not isinstance(column, data.Number)]
    search = GridSearchCV(
        make_pipeline(
            make_column_transformer(
                (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), names)
            ),
            LogisticRegression(class_weight="balanced", max_iter=5000),
        ),
        {"logisticregression__C": list(strengths)},
        scoring="roc_auc",
        cv=5,
    )
    search.fit(table(training), [loan.bad for loan in training])
    bad = [loan.bad for loan in validation]
    scores = search.predict_proba(table(validation))[:, 1]
    return {
        "training_loans": len(training),
        "validation_loans": len(validation),
        "validation_bad": sum(bad),
        "penalty_c": search.best_params_["logisticregression__C"],
        "cross_validated_auc": float(search.best_score_),
        "auc": float(roc_auc_score(bad, scores)),
        "average_precision": float(average_precision_score(bad, scores)),
    }


def main() -> None:
    """Print the figures; with --out also write them as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one penalty only, about 5 s")
    parser.add_argument("--out", type=Path, help="directory for credit_risk_baseline.json")
    options = parser.parse_args()
    figures = measure(STRENGTHS[2:3] if options.quick else STRENGTHS)
    print("credit risk, logistic regression")
    for name, value in figures.items():
        print(f"  {name:<20} {value:g}" if name != "auc" else f"  {name:<20} {value:.4f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "credit_risk_baseline.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
