"""Known blocks as weights of TFLite files: the same integers and scales.

Kernels have blocks of 4 bits, with scales in half precision, and rows of 4 or 8 bits. Blocks of 8 bits are two digits:
`code = 16 * high + low + 8`. Both are columns of one matrix, `high` with 16 times the scale, which reads every activation
twice: `x @ (high + low)` is `[x, x] @ [high; low]`, one product. The 8, and minima, are offsets of the blocks, which are
products of their own. Kernels have positive scales only: for a negative one, `scale * code = -scale * ~code - scale`, with
the complement of the code. Where it is 0, so are the codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.block_quantize import pack_nibbles
from keras_transformer.export.quantization.known_blocks import KnownBlocks
from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.quantization.blocks import block_parameters, row_parameters
from keras_transformer.export.tflite.quantization.offsets import Offsets, add_to_rows
from keras_transformer.export.tflite.tree import add_buffer, schema, signature_of
from keras_transformer.export.tflite.weights.weight import ROWS, Weight, readers
from keras_transformer.quantization.blocks import MIDDLES, Blocks

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

_FEWEST = 32  # Numbers of a block, of which the others are multiples.
_ANY_SCALE = np.float32(2.0**-14)  # Of blocks whose codes are 0.
_LARGEST = float(np.finfo("float16").max)
_PRODUCT, _LOOKUP = "FULLY_CONNECTED", "EMBEDDING_LOOKUP"


class DoubledInputs:
    """The activations of the graphs of a file beside themselves, once for all products that read them."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def read(self, graph: Graph, operator: OperatorT, width: int) -> None:
        """Lets a `FULLY_CONNECTED` read its activations twice.

        Args:
            graph: `Graph`, changed in place.
            operator: the product.
            width: of the activations.
        """
        source, *others = map(int, operator.inputs)
        key = id(graph.subgraph), source
        if key not in self._known:
            sizes = signature_of(graph.tensors[source])
            name = f"{graph.tensors[source].name.decode()}/twice"
            self._known[key] = graph.add_tensor(name, "FLOAT32", (*sizes[:-1], 2 * width))
            options = schema().ConcatenationOptionsT()
            options.axis = len(sizes) - 1
            position = graph.subgraph.operators.index(operator)
            graph.insert(position, "CONCATENATION", (source, source), (self._known[key],), options)
        operator.inputs = np.array([self._known[key], *others], "int32")


class Digits(NamedTuple):
    """A weight as the kernels read it.

    Attributes:
        codes: int8 `(N, K)` or, of 8 bits, `(N, 2 * K)`, from -8 to 7.
        scale: float16 `(N, blocks)` or `(N, 2 * blocks)`.
        offset: float32 `(N, blocks)`, or None.
        is_double: bool. Whether there are two digits.
    """

    codes: np.ndarray
    scale: np.ndarray
    offset: np.ndarray | None
    is_double: bool


def digits(blocks: Blocks) -> Digits:
    """The digits of blocks whose scales are in half precision, with positive scales.

    Example:

    >>> half = np.ones((1, 1), "float16")
    >>> found = digits(Blocks(np.array([[[255, 100]]], "uint8"), half, None, 128, 8))  # 127 and -28.
    >>> found.codes.tolist(), found.scale.tolist(), found.offset.tolist()
    ([[7, -2, 7, -4]], [[16.0, 1.0]], [[8.0]])
    """
    zero = blocks.zero if blocks.minimum is None else MIDDLES[blocks.bits]
    numbers, scale = blocks.codes.astype("int16") - np.int16(zero), blocks.scale.astype("float32")
    offset = np.zeros_like(scale) if blocks.minimum is None else blocks.minimum.astype("float32") + scale * zero
    # -x is ~x + 1.
    is_negative = scale < 0
    numbers = np.where(is_negative[..., None], ~numbers, numbers)
    scale = np.abs(scale)
    offset += np.where(is_negative, scale, 0)
    if blocks.bits == 8:
        offset += 8 * scale
        parts = [numbers >> 4, (numbers & 15) - 8]
    else:
        parts = [numbers]
    is_zero = scale == 0
    parts = [np.where(is_zero[..., None], 0, each).reshape(len(scale), -1) for each in parts]
    least = np.where(is_zero, _ANY_SCALE, scale)
    scales = np.concatenate([16 * least, least][-len(parts) :], axis=1).astype("float16")
    codes = np.concatenate(parts, axis=1).astype("int8")
    return Digits(codes, scales, offset if offset.any() else None, len(parts) == 2)


class KeptBlocks:
    """Replaces the weights of a file whose integers are known.

    Args:
        model: `ModelT`, changed in place.
        blocks: `KnownBlocks`.
    """

    def __init__(self, model: ModelT, blocks: KnownBlocks) -> None:
        self._model, self._blocks = model, blocks
        self._offsets: dict[int, Offsets] = {}
        self._doubled = DoubledInputs()

    def keep(self, weight: Weight) -> None:
        """Replaces one weight, unless it is known as numbers, or an operator other than products and lookups reads it.

        Raises:
            QuantizationError: its blocks do not fit the kernels.
        """
        uses = [(graph, index, *use) for graph, index in weight.tensors for use in readers(graph, index)]
        kinds = {(graph.kind(operator), position) for graph, _, operator, position in uses}
        if len(weight.shape) != 2 or not kinds <= {(kind, ROWS[kind]) for kind in (_PRODUCT, _LOOKUP)}:
            return
        found = self._blocks.find(weight.values)
        if found is None:
            return
        if found.has_whole_rows:
            self._store_rows(weight, found)
            return
        self._check(weight, found)
        kept, block = digits(found), found.codes.shape[2]
        # In this order: the sums of blocks are of the activations before they are doubled.
        if kept.offset is not None:
            self._add_offset(weight, kept, block)
        if kept.is_double:
            for graph, _, operator, _ in uses:
                if graph.kind(operator) == _PRODUCT:
                    self._doubled.read(graph, operator, weight.shape[1])
        self._store_blocks(weight, kept, block)

    def _check(self, weight: Weight, found: Blocks) -> None:
        """Refuses blocks that the kernels do not have."""
        most = 16 * float(np.abs(found.scale).max()) if found.bits == 8 else 0.0
        if found.scale.dtype == np.float16 and found.codes.shape[2] % _FEWEST == 0 and most <= _LARGEST:
            return
        name, _ = self._blocks.locate(weight.values) or ("", None)
        raise QuantizationError(
            f"tflite: {name!r} of {self._blocks.source} has blocks of {self._blocks.kind(name)}, whose scales need more "
            "than half precision: ONNX files keep them"
        )

    def _add_offset(self, weight: Weight, kept: Digits, block: int) -> None:
        offset = kept.offset
        assert offset is not None
        products = [each for each in weight.tensors if self._is_read_by(each, _PRODUCT)]
        if products:
            self._offsets.setdefault(block, Offsets(self._model, block)).add(products, offset)
        buffer = None
        for graph, index in weight.tensors:
            for operator in [each for each, _ in readers(graph, index) if graph.kind(each) == _LOOKUP]:
                buffer = add_buffer(self._model, offset) if buffer is None else buffer
                name = f"{graph.tensors[index].name.decode()}/row_offsets"
                table = graph.add_tensor(name, "FLOAT32", offset.shape, buffer)
                add_to_rows(graph, operator, table, weight.shape[1], 2 if kept.is_double else 1)

    def _is_read_by(self, tensor: tuple[Graph, int], kind: str) -> bool:
        graph, index = tensor
        return any(graph.kind(operator) == kind for operator, _ in readers(graph, index))

    def _store_blocks(self, weight: Weight, kept: Digits, block: int) -> None:
        self._store(weight, kept.codes, "INT4")
        buffer = add_buffer(self._model, kept.scale)
        for graph, index in weight.tensors:
            tensor = graph.tensors[index]
            tensor.quantization = block_parameters(graph, tensor.name.decode(), kept.scale.shape, buffer, block)

    def _store_rows(self, weight: Weight, found: Blocks) -> None:
        """Stores whole rows; those of 4 bits in 8 if their width is odd: lookups read whole bytes."""
        numbers = (found.codes[:, 0].astype("int16") - np.int16(found.zero)).astype("int8")
        self._store(weight, numbers, "INT4" if found.bits == 4 and numbers.shape[1] % 2 == 0 else "INT8")
        parameters = row_parameters(found.scale[:, 0])
        for graph, index in weight.tensors:
            graph.tensors[index].quantization = parameters

    def _store(self, weight: Weight, numbers: np.ndarray, kind: str) -> None:
        """Stores int8 numbers `(N, K)` as tensors of type `kind`."""
        data = np.ascontiguousarray(numbers).reshape(-1).view("uint8")
        self._model.buffers[weight.buffer].data = pack_nibbles(data & 15) if kind == "INT4" else data
        for graph, index in weight.tensors:
            tensor = graph.tensors[index]
            tensor.type, tensor.shape = getattr(schema().TensorType, kind), np.array(numbers.shape, "int32")
