"""The mechanisms by name. To add one: its file, its line here, its case in tests/contract/cases.py."""

from keras_transformer.attention.bigbird import BigBirdAttention
from keras_transformer.attention.block_sparse import BlockSparseAttention
from keras_transformer.attention.blockwise import BlockwiseAttention
from keras_transformer.attention.chunked import ChunkedAttention
from keras_transformer.attention.clustered import ClusteredAttention, ImprovedClusteredAttention
from keras_transformer.attention.dilated import DilatedAttention
from keras_transformer.attention.infini import InfiniAttention
from keras_transformer.attention.linear import LinearAttention
from keras_transformer.attention.linformer import LinformerAttention
from keras_transformer.attention.local import LocalAttention
from keras_transformer.attention.longnet import LongNetAttention
from keras_transformer.attention.lsh import LSHAttention
from keras_transformer.attention.performer import PerformerAttention
from keras_transformer.attention.retrieval import RetrievalAttention
from keras_transformer.attention.softmax import SoftmaxAttention
from keras_transformer.attention.sparse import StridedSparseAttention
from keras_transformer.attention.sparse_fixed import FixedSparseAttention
from keras_transformer.attention.subspace_attention import SubspaceAttention

MECHANISMS = {
    "softmax": SoftmaxAttention,
    "local": LocalAttention,
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
    "dilated": DilatedAttention,
    "sparse_strided": StridedSparseAttention,
    "sparse_fixed": FixedSparseAttention,
    "block_sparse": BlockSparseAttention,
    "bigbird": BigBirdAttention,
    "infini": InfiniAttention,
    "subspace": SubspaceAttention,
}
