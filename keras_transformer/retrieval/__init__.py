"""Finding passages that are like the text at hand: a database of chunks, and what trains and generates with it.

Nothing here imports TensorFlow or Keras before training batches or an encoder of theirs are asked for, so that an exported
bundle retrieves where only its runtime is installed.
"""

import importlib

from keras_transformer.nearest_neighbours import NearestNeighbours
from keras_transformer.retrieval.chunks import Chunks
from keras_transformer.retrieval.database import ChunkDatabase
from keras_transformer.retrieval.errors import InvalidDatabaseError, RetrievalError
from keras_transformer.retrieval.n_grams import HashedNGrams
from keras_transformer.retrieval.steps import RetrievalSteps, with_retrieval

# Loaded on first use: they need Keras.
_LAZY = {"MeanEmbedding": "mean_embedding", "retrieval_batches": "batches", "retrieval_evaluation_batches": "batches"}

__all__ = [
    "ChunkDatabase",
    "Chunks",
    "HashedNGrams",
    "InvalidDatabaseError",
    "NearestNeighbours",
    "RetrievalError",
    "RetrievalSteps",
    "with_retrieval",
    *_LAZY,
]


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
