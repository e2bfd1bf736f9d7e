"""Words to numbers: learns a WordPiece vocabulary from texts and writes texts as rows of token numbers.

Both halves are keras_hub's (its trainer and its BertTokenizer), so a real BERT vocabulary would fit as well.
It must not know of loans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phalanx.errors import IncompatibleError

# BERT's special tokens. Padding is number 0: the model takes every other number for a word.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def learn(texts: Sequence[str], size: int) -> list[str]:
    """A vocabulary of at most `size` tokens, the special ones first; the same texts give the same vocabulary.

    The algorithm is that of Schuster and Nakajima, "Japanese and Korean voice search" (2012), top-down as in
    tensorflow_text. Give it the training part only.
    """
    import keras_hub
    import tensorflow as tf

    learnt: list[str] = keras_hub.tokenizers.compute_word_piece_vocabulary(
        tf.data.Dataset.from_tensor_slices(list(texts)), size, reserved_tokens=list(SPECIAL_TOKENS)
    )
    return learnt


def encode(texts: Sequence[str], vocabulary: Sequence[str], length: int) -> NDArray[np.int32]:
    """Texts as an array (texts, length) of token numbers: [CLS], the pieces of the text, [SEP], padding.

    Raises IncompatibleError for a text that does not fit: cutting it would drop fields unseen.
    """
    import keras_hub

    tokenizer: Any = keras_hub.tokenizers.BertTokenizer(vocabulary=list(vocabulary))
    rows = np.full((len(texts), length), SPECIAL_TOKENS.index("[PAD]"), dtype=np.int32)
    for row, pieces in zip(rows, tokenizer(list(texts)), strict=True):
        numbers = [tokenizer.cls_token_id, *map(int, pieces), tokenizer.sep_token_id]
        if len(numbers) > length:
            raise IncompatibleError(
                f"a text has {len(numbers)} tokens, more than the sequence length of {length}",
                "raise the sequence length, or enlarge the vocabulary so that fewer words are cut in pieces",
            )
        row[: len(numbers)] = numbers
    return rows
