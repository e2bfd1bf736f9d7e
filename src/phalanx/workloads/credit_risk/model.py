"""BERT with a head that says how likely a loan goes bad. Owns sizes, optimizer and metrics; knows no data.

Sizes: `base` and `large` are those of Devlin et al., "BERT" (2019), arXiv:1810.04805, section 3, with the
feed-forward width of 4 * hidden given there; `tiny` is BERT-Tiny of Turc et al., "Well-Read Students Learn
Better" (2019), arXiv:1908.08962. All weights start at random: no pretrained weights are downloaded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Size:
    """Shape of a BERT encoder; the names are the arguments of `keras_hub.models.BertBackbone`."""

    num_layers: int
    num_heads: int
    hidden_dim: int
    intermediate_dim: int


SIZES = {
    "tiny": Size(num_layers=2, num_heads=2, hidden_dim=128, intermediate_dim=512),
    "base": Size(num_layers=12, num_heads=12, hidden_dim=768, intermediate_dim=3072),
    "large": Size(num_layers=24, num_heads=16, hidden_dim=1024, intermediate_dim=4096),
}


def build(size: Size, vocabulary_size: int, sequence_length: int, dropout: float) -> Any:
    """A Keras model from token numbers, int32 (batch, sequence_length), to logits, float32 (batch, 1)."""
    import keras
    import keras_hub

    tokens = keras.Input((sequence_length,), dtype="int32", name="token_ids")
    words = keras.ops.not_equal(tokens, 0)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=vocabulary_size,
        max_sequence_length=sequence_length,
        dropout=dropout,
        **asdict(size),
    )
    # Without BERT's own pooler, which looks at the first token only: trained from nothing on 8,000 loans, the
    # mean over all words does better (docs/credit-risk.md).
    encoder = keras.Model(backbone.input, backbone.output["sequence_output"], name="encoder")
    encoded = encoder(
        {
            "token_ids": tokens,
            "segment_ids": keras.ops.zeros_like(tokens),
            "padding_mask": keras.ops.cast(words, "int32"),
        }
    )
    mean = keras.layers.GlobalAveragePooling1D(name="mean_of_words")(encoded, mask=words)
    pooled = keras.layers.Dropout(dropout, name="head_dropout")(mean)
    # The logit stays in float32 under mixed precision; 0.02 is BERT's own spread of initial weights.
    logit = keras.layers.Dense(
        1, kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02), dtype="float32", name="logit"
    )(pooled)
    return keras.Model(tokens, logit, name="credit_risk_bert")


def compile_for(model: Any, steps: int, learning_rate: float) -> None:
    """Compile with BERT's recipe: AdamW, warm-up in the first tenth of `steps`, gradients clipped to norm 1.

    After the warm-up the rate falls to 0 along a cosine. `auc` and `average_precision` come from 1,000
    thresholds and count every loan once, without its class weight.
    """
    import keras

    warmup = max(steps // 10, 1)
    rate = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=max(steps - warmup, 1),
        warmup_target=learning_rate,
        warmup_steps=warmup,
    )
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    metrics = [
        keras.metrics.AUC(name="auc", num_thresholds=1000, from_logits=True),
        keras.metrics.AUC(name="average_precision", curve="PR", num_thresholds=1000, from_logits=True),
    ]
    model.compile(optimizer, loss=keras.losses.BinaryCrossentropy(from_logits=True), metrics=metrics)
