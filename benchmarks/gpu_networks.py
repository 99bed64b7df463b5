"""The networks of `gpu_training.py` and `step_bytes.py`: ViT-S/16, BERT-base and GPT-2, without dropout, with full rows.

Each has a builder, a batch, the peer in PyTorch, and the number of parameters that multiply every token.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from networks import TINY, Measures

from keras_transformer import models, tasks

NUM_CLASSES = 1000
VIT_S = Measures(num_layers=12, image_size=224)
BERT_BASE = Measures(12, 768, 12, 3072, length=512, vocabulary_size=30522)
GPT2_SMALL = Measures(12, 768, 12, 3072, length=1024, vocabulary_size=50257)
GPT2_MEDIUM = Measures(24, 1024, 16, 4096, length=1024, vocabulary_size=50257)


class Network(NamedTuple):
    """A network to train.

    Attributes:
        measures: `Measures`.
        build: function of the measures to a Keras model.
        batch: function of the measures and a batch size to `(inputs, labels)`: arrays, or a dict of arrays and None.
        peer: function of the module `torch_networks` and the measures to the same network in PyTorch.
        length: function of the measures to the number of tokens of a sequence.
        tables: function of the measures to the number of rows of embeddings that are looked up, not multiplied.
        batch_size: int. On a card of 80 GB.
    """

    measures: Measures
    build: Callable[[Measures], Any]
    batch: Callable[[Measures, int], tuple[Any, np.ndarray]]
    peer: Callable[[Any, Measures], Any]
    length: Callable[[Measures], int]
    tables: Callable[[Measures], int]
    batch_size: int

    def tiny(self):
        """The same network of a size for smoke tests."""
        return self._replace(measures=self.measures._replace(**TINY, vocabulary_size=64), batch_size=2)


def vit(measures):
    backbone = models.ViT(measures.size, measures.patch_size, measures.image_size)
    return tasks.ImageClassifier(backbone, NUM_CLASSES, activation=None)


def bert(measures):
    options = {"dropout": 0.0, "attention_dropout": 0.0, "max_sequence_length": measures.length}
    backbone = models.BERT(measures.size, measures.vocabulary_size, **options)
    return tasks.SequenceClassifier(backbone, NUM_CLASSES, pooling="first", activation=None)


def gpt2(measures):
    length = measures.length
    return tasks.LanguageModel(models.Decoder(measures.size, measures.vocabulary_size, max_sequence_length=length))


def images(measures, batch_size):
    random = np.random.default_rng(0)
    pixels = random.random((batch_size, measures.image_size, measures.image_size, 3), dtype="float32")
    return pixels, random.integers(0, NUM_CLASSES, batch_size, dtype="int32")


def texts(measures, batch_size):
    random = np.random.default_rng(0)
    token_ids = random.integers(0, measures.vocabulary_size, (batch_size, measures.length), dtype="int32")
    inputs = {"token_ids": token_ids, "padding_mask": None, "segment_ids": np.zeros_like(token_ids)}
    return inputs, random.integers(0, NUM_CLASSES, batch_size, dtype="int32")


def windows(measures, batch_size):
    token_ids = np.random.default_rng(0).integers(0, measures.vocabulary_size, (batch_size, measures.length + 1))
    token_ids = token_ids.astype("int32")
    return {"token_ids": token_ids[:, :-1], "padding_mask": None}, token_ids[:, 1:]


def patches(measures):
    return (measures.image_size // measures.patch_size) ** 2 + 1


def _decoder(measures, batch_size):
    return Network(
        measures,
        gpt2,
        windows,
        lambda torch_networks, measures: torch_networks.GPT(measures),
        lambda measures: measures.length,
        lambda measures: measures.length,  # The token table is the head too.
        batch_size,
    )


NETWORKS = {
    "vit_s16": Network(
        VIT_S,
        vit,
        images,
        lambda torch_networks, measures: torch_networks.ViT(measures, NUM_CLASSES),
        patches,
        patches,
        256,
    ),
    "bert_base": Network(
        BERT_BASE,
        bert,
        texts,
        lambda torch_networks, measures: torch_networks.BERT(measures, NUM_CLASSES),
        lambda measures: measures.length,
        lambda measures: measures.vocabulary_size + measures.length + 2,
        32,
    ),
    "gpt2_small": _decoder(GPT2_SMALL, 16),
    "gpt2_medium": _decoder(GPT2_MEDIUM, 8),
}


def multiplied_parameters(network, parameters):
    """The parameters that multiply every token: all but the tables that are looked up."""
    return parameters - network.tables(network.measures) * network.measures.hidden_dim
