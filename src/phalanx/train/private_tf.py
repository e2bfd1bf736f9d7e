"""Every private name of TensorFlow that Phalanx uses, and a self-test of them. Verified with TensorFlow 2.21.

Why they are needed: with TensorFlow's own coordination service a missing peer holds strategy construction for
up to an hour without releasing the interpreter. The agent owns every deadline instead.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from tensorflow.python.eager import context

from phalanx.errors import IncompatibleError

# Gradients are packed up to this size before they are sent: 100 MB took 220 ms so, against 432-456 ms
# unpacked and 260 ms with 10 MB (loopback, RING, two processes on two cores).
BYTES_PER_PACK = 4 * 1024 * 1024


def self_test() -> None:
    """Raise IncompatibleError when this TensorFlow lacks a private name used here."""
    missing = [
        name
        for name, there in {
            "Context.configure_coordination_service": hasattr(
                context.Context, "configure_coordination_service"
            ),
            "Context.coordination_service": hasattr(context.Context, "coordination_service"),
            "CollectiveAllReduceExtended._enable_check_health": hasattr(
                CollectiveAllReduceExtended, "_enable_check_health"
            ),
        }.items()
        if not there
    ]
    if missing:
        raise IncompatibleError(
            f"TensorFlow {tf.__version__} lacks {', '.join(missing)}, which Phalanx switches off",
            "install tensorflow 2.21, the version that this Phalanx was verified with",
        )


def communication_options() -> Any:
    """RING, never AUTO: NCCL refuses two MIG slices of one GPU, and on CPU only RING exists."""
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=BYTES_PER_PACK,
        implementation=tf.distribute.experimental.CommunicationImplementation.RING,
    )


def multi_worker_strategy() -> Any:
    """Build MultiWorkerMirroredStrategy from TF_CONFIG without coordination service and health check.

    Returns at once, also when peers are missing; the first variable then waits for them.
    Raises IncompatibleError when TensorFlow was used before.
    """
    self_test()
    context.context().configure_coordination_service(service_type="")
    CollectiveAllReduceExtended._enable_check_health = False
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication_options())
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise IncompatibleError(
            "TensorFlow was already in use when phalanx.train.init() was called",
            "call phalanx.train.init() before anything that makes a tensor, a data set or a model",
        ) from error
