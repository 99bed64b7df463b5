"""Attention mechanisms by name. To add one, add its file, its line here and its case in tests/contract/cases.py."""

from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.blockwise import BlockwiseAttention
from keras_transformer.attention.mechanisms.chunked import ChunkedAttention
from keras_transformer.attention.mechanisms.clusters.clustered import ClusteredAttention
from keras_transformer.attention.mechanisms.clusters.improved_clustered import ImprovedClusteredAttention
from keras_transformer.attention.mechanisms.clusters.lsh import LSHAttention
from keras_transformer.attention.mechanisms.differential import DifferentialAttention
from keras_transformer.attention.mechanisms.infini import InfiniAttention
from keras_transformer.attention.mechanisms.linear import LinearAttention
from keras_transformer.attention.mechanisms.linformer import LinformerAttention
from keras_transformer.attention.mechanisms.performer import PerformerAttention
from keras_transformer.attention.mechanisms.retrieval import RetrievalAttention
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mechanisms.sparse.bigbird import BigBirdAttention
from keras_transformer.attention.mechanisms.sparse.block_sparse import BlockSparseAttention
from keras_transformer.attention.mechanisms.sparse.dilated import DilatedAttention
from keras_transformer.attention.mechanisms.sparse.local import LocalAttention
from keras_transformer.attention.mechanisms.sparse.longnet import LongNetAttention
from keras_transformer.attention.mechanisms.sparse.sparse_fixed import FixedSparseAttention
from keras_transformer.attention.mechanisms.sparse.sparse_strided import StridedSparseAttention
from keras_transformer.attention.mechanisms.sparse.streaming import StreamingAttention
from keras_transformer.attention.mechanisms.subspace import SubspaceAttention

MECHANISMS: dict[str, type[Mechanism]] = {
    "softmax": SoftmaxAttention,
    "local": LocalAttention,
    "streaming": StreamingAttention,
    "chunked": ChunkedAttention,
    "longnet": LongNetAttention,
    "lsh": LSHAttention,
    "clustered": ClusteredAttention,
    "improved_clustered": ImprovedClusteredAttention,
    "linear": LinearAttention,
    "performer": PerformerAttention,
    "linformer": LinformerAttention,
    "blockwise": BlockwiseAttention,
    "retrieval": RetrievalAttention,
    "differential": DifferentialAttention,
    "dilated": DilatedAttention,
    "sparse_strided": StridedSparseAttention,
    "sparse_fixed": FixedSparseAttention,
    "block_sparse": BlockSparseAttention,
    "bigbird": BigBirdAttention,
    "infini": InfiniAttention,
    "subspace": SubspaceAttention,
}
