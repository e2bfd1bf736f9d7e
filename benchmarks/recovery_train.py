"""What `recovery.py` trains: a small model, so that the figure is Phalanx's and not the model's."""

import keras
import numpy as np

from phalanx import train

run = train.init(global_batch=32)
with run.scope():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(1e-3), loss="mse")
rng = np.random.default_rng(0)
x = rng.normal(size=(4096, 16)).astype("float32")
run.fit(model, train.data.from_arrays(x, x.sum(axis=1, keepdims=True)), steps=1_000_000)
