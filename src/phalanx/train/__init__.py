"""The worker's library: `run = phalanx.train.init()`.

The one room whose `__init__` is not empty, since `phalanx.train` is what a training script imports. Names
load on first use: `phalanx.train.bootstrap` starts workers of any kind and must not pull TensorFlow in.
"""
