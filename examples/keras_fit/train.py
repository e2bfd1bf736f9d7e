"""The stock `model.fit`, kept: two lines make it work on all workers.

    python train.py                      # one process
    phalanx run train.py -n 2            # two workers, the same result

A restart begins this script anew: `model.fit` has no way to resume inside an epoch. `run.fit` has.
"""

import argparse

import keras
import numpy as np

from phalanx import train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    run = train.init()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2048, 16)).astype("float32")
    y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")

    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((16,)),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=["accuracy"])

    run.prepare(model)
    model.fit(x, y, batch_size=64, epochs=options.epochs, verbose=2 if run.is_chief else 0)
    figures = model.evaluate(x, y, batch_size=64, verbose=0, return_dict=True)
    if run.is_chief:
        print(f"accuracy over all examples: {figures['accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
