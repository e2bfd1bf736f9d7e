"""Trains BERT to tell which loans go bad; the entrypoint `phalanx.workloads.credit_risk.train:main`.

Uses `phalanx.train` as any training program would. Under `phalanx run` it trains on all workers; started as
`python -m phalanx.workloads.credit_risk.train` it trains in one process.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from phalanx import train
from phalanx.workloads.credit_risk import model, prepare

STEPS = 400
GLOBAL_BATCH = 32


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """What the program can be told; steps, global batch, seed and precision belong to the job file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--size", choices=sorted(model.SIZES), default="tiny", help="size of the BERT encoder"
    )
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="peak learning rate")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--validate-every", type=int, default=200, help="steps from one validation to the next"
    )
    parser.add_argument(
        "--cache", type=Path, default=prepare.default_directory(), help="where prepared data is kept"
    )
    return parser.parse_args(argv)


def main() -> None:
    """Prepare the data if need be, then train to the last step and validate."""
    options = arguments()
    run = train.init(steps=STEPS, global_batch=GLOBAL_BATCH)
    loans = prepare.prepared(options.cache)
    with run.scope():
        bert = model.build(
            model.SIZES[options.size],
            vocabulary_size=len(loans.vocabulary),
            sequence_length=loans.training_tokens.shape[1],
            dropout=options.dropout,
        )
        model.compile_for(bert, run.settings.steps or STEPS, options.learning_rate)
    run.fit(
        bert,
        train.data.from_arrays(
            loans.training_tokens,
            loans.training_bad[:, None],
            loans.training_weights(),
        ),
        validation=train.data.from_arrays(
            loans.validation_tokens, loans.validation_bad[:, None], shuffle=False
        ),
        validation_every=options.validate_every,
    )


if __name__ == "__main__":
    main()
