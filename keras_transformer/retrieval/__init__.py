"""Finding passages that are like the text at hand: a database of chunks, and what trains and generates with it.

Nothing here imports TensorFlow or Keras before training batches or an encoder of theirs are asked for, so that an exported
bundle retrieves where only its runtime is installed.
"""

from keras_transformer.lazy import lazy
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

__getattr__, __dir__ = lazy(__name__, _LAZY, __all__)
