"""Encoders of speech that read a recording chunk by chunk."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_transformer.attention.cache.dense import cache_spec
from keras_transformer.audio import FeatureEncoder, FrameMask
from keras_transformer.backend import keras_private
from keras_transformer.backend.call_arguments import takes
from keras_transformer.blocks import StreamingEncoderBlock
from keras_transformer.models.transforms.graph_walk import walk
from keras_transformer.models.transforms.token_probe import check_per_token
from keras_transformer.utils.serialization import model_record, serializable
from keras_transformer.utils.types import Cache, Config, DType, Outputs, Tensor

if TYPE_CHECKING:
    from keras_transformer.backend.keras_private.graphs import Node

_SAMPLES, _MASK = "samples", "padding_mask"
_RECENT_SAMPLES, _NUM_FRAMES = "recent_samples", "num_frames"


class Chunkwise:
    """Runs an encoder of speech, such as `StreamingWav2Vec2` with or without a head, chunk by chunk.

    A chunk gives what the whole recording gives at its frames. What it needs of the past is a cache of fixed size: the last
    samples, frames of the position convolution, keys and values of the chunks before. So no step takes longer than another.

    Args:
        model: Functional `keras.Model` from "samples" and "padding_mask" to one output per frame. Frames are made by a
            `FeatureEncoder` with `norm="layer"`. Layers after it must have a cache, as `StreamingEncoderBlock` and
            `ConvolutionalPosition(padding="causal")`, or compute each frame independently, which is checked.

    Attributes:
        chunk_length: int. Frames of a chunk.
        chunk_samples: int. Samples of a chunk.
        num_lead_samples: int. Samples at the start of a recording that go into its cache, with `begin`: the first frame of a
            chunk begins this many samples before the chunk's own samples.
        output_name: str. Name of the output of `to_model`, that of the last layer.

    Call arguments:
        samples: float `(B, chunk_samples)`.
        padding_mask: boolean `(B, chunk_samples)`, True = a real sample. Padding is on the right, and ends the recording of
            the row. A row without any real sample keeps its cache.
        cache: dict of tensors, batch first, as `begin` returns.

    Returns:
        `(output, cache)`: float `(B, chunk_length, ...)`, and the next cache.

    Raises:
        ValueError: the model has other inputs; the convolutions are normalized over time; an operation without a cache mixes
            frames (the message names it); no block reads chunks, or blocks read chunks of different lengths.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.models import Size, StreamingWav2Vec2
    >>> steps = Chunkwise(StreamingWav2Vec2(Size(1, 32, 2, 64), chunk_length=4, chunks_before=2))
    >>> recording = np.zeros((1, 80 + 1280), "float32")
    >>> cache = steps.begin(recording[:, : steps.num_lead_samples])
    >>> output, cache = steps(recording[:, 80:], np.ones((1, 1280), bool), cache)
    >>> tuple(output.shape), tuple(cache["encoder_block_0_recent_keys"].shape)
    ((1, 4, 32), (1, 8, 2, 16))
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self._inputs = {tensor.name: tensor for tensor in keras.tree.flatten(model.input)}
        if set(self._inputs) != {_SAMPLES, _MASK}:
            raise ValueError(
                f"{model.name!r} must take samples and padding_mask; its inputs are {sorted(self._inputs)}."
            )
        self._nodes = keras_private.nodes_in_order(model)
        self._output = keras.tree.flatten(model.output)[0]
        self.output_name = keras_private.producer(self._output).name
        encoder = self._feature_encoder()
        hop = math.prod(encoder.strides)
        self.chunk_length, self._memory = self._check_blocks()
        self.chunk_samples = self.chunk_length * hop
        self.num_lead_samples = max(encoder.receptive_field - hop, 0)
        self._check_per_frame()

    def _feature_encoder(self):
        found = [node.operation for node in self._nodes if isinstance(node.operation, FeatureEncoder)]
        if len(found) != 1:
            raise ValueError(f"{self.model.name!r} must have one FeatureEncoder. Received: {len(found)}")
        if found[0].norm != "layer":
            raise ValueError(
                f"{found[0].name!r} normalizes over time, which needs the whole recording: streaming needs norm='layer'."
            )
        return found[0]

    def _check_blocks(self):
        blocks = [node.operation for node in self._nodes if isinstance(node.operation, StreamingEncoderBlock)]
        lengths = {block.chunk_length for block in blocks}
        if len(lengths) != 1:
            raise ValueError(
                f"The blocks of {self.model.name!r} must be StreamingEncoderBlock, with one length of chunks. Received: "
                f"{sorted(lengths) or 'none'}"
            )
        return lengths.pop(), max(block.memory_length for block in blocks)

    def _check_per_frame(self):
        """Raises an error for operations that mix frames without a cache."""
        frames = {
            id(tensor): tensor
            for node in self._nodes
            if isinstance(node.operation, (FeatureEncoder, FrameMask))
            for tensor in node.outputs
        }
        nodes = [node for node in self._nodes if not any(id(tensor) in frames for tensor in node.outputs)]
        try:
            check_per_token(
                nodes, frames, {}, self._output, has_cache=_reads_chunks, takes_positions=lambda node: False
            )
        except ValueError as error:
            raise ValueError(f"{self.model.name!r} cannot be read chunk by chunk: {error}") from error

    def init_cache(self, batch_size: int, dtype: DType = None) -> Cache:
        """Returns the cache before the first sample: dict of tensors, batch first, zeros."""
        dtype = dtype or self.model.compute_dtype
        cache = {}
        if self.num_lead_samples:
            cache[_RECENT_SAMPLES] = ops.zeros((batch_size, self.num_lead_samples), "float32")
        if self._memory:
            cache[_NUM_FRAMES] = ops.zeros((batch_size,), "int32")
        for node in filter(_reads_chunks, self._nodes):
            own = node.operation.init_cache(batch_size, dtype)
            cache |= {f"{node.operation.name}_{name}": tensor for name, tensor in own.items()}
        return cache

    def begin(self, samples: Tensor, dtype: DType = None) -> Cache:
        """Returns the cache at the first chunk, from the first samples of the recordings, `(B, num_lead_samples)`.

        Raises:
            ValueError: another number of samples.
        """
        if samples.shape[1] != self.num_lead_samples:
            raise ValueError(f"Expected the first {self.num_lead_samples} samples. Received: {samples.shape[1]}")
        lead = {_RECENT_SAMPLES: ops.convert_to_tensor(samples, "float32")} if self.num_lead_samples else {}
        return self.init_cache(samples.shape[0], dtype) | lead

    def __call__(self, samples: Tensor, padding_mask: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        if samples.shape[1] != self.chunk_samples:
            raise ValueError(f"Expected chunks of {self.chunk_samples} samples. Received: {samples.shape[1]}")
        padding_mask = ops.cast(padding_mask, "bool")
        following: Cache = {}
        window, mask = samples, padding_mask
        if self.num_lead_samples:
            before = cache[_RECENT_SAMPLES]
            window = ops.concatenate([before, ops.cast(samples, before.dtype)], axis=1)
            mask = ops.concatenate([ops.ones_like(before, dtype="bool"), padding_mask], axis=1)
            following[_RECENT_SAMPLES] = window[:, self.chunk_samples :]
        if self._memory:
            # No block counts further back: the number stays small in a stream without end.
            following[_NUM_FRAMES] = ops.minimum(cache[_NUM_FRAMES] + self.chunk_length, self._memory)
        values = {id(self._inputs[_SAMPLES]): window, id(self._inputs[_MASK]): mask}

        def call(node: Node, layer: keras.layers.Layer, args: tuple[object, ...], kwargs: dict[str, object]) -> Outputs:
            if not _reads_chunks(node):
                return layer(*args, **kwargs)
            own = {name: cache[f"{layer.name}_{name}"] for name in layer.init_cache(1)}
            index = {"cache_index": cache.get(_NUM_FRAMES, 0)} if takes(layer, "cache_index") else {}
            output, own = layer(*args, **kwargs, cache=own, **index)
            following.update({f"{layer.name}_{name}": tensor for name, tensor in own.items()})
            return output

        walk(self._nodes, values, call)
        is_active = ops.any(padding_mask, axis=1)
        return values[id(self._output)], {name: _where_row(is_active, x, cache[name]) for name, x in following.items()}

    def to_model(self, name: str | None = None) -> keras.Model:
        """Returns one step as a Functional model that shares the weights: to export, and to run compiled.

        Returns:
            `keras.Model`: {"samples", "padding_mask"} and the tensors of the cache, by their names, to a dict of the output,
            under the name of its layer, and of the tensors of the next cache.
        """
        inputs = {
            _SAMPLES: keras.Input((self.chunk_samples,), name=_SAMPLES),
            _MASK: keras.Input((self.chunk_samples,), dtype="bool", name=_MASK),
        }
        cache = {
            key: keras.Input(tensor.shape[1:], dtype=keras.backend.standardize_dtype(tensor.dtype), name=key)
            for key, tensor in self.init_cache(1).items()
        }
        step = ChunkStep(self.model, name="step")
        output, following = step(*inputs.values(), cache)
        return keras.Model(
            {**inputs, **cache}, {self.output_name: output, **following}, name=name or f"{self.model.name}_step"
        )


@serializable
class ChunkStep(keras.layers.Layer):
    """`Chunkwise` as a layer, for Functional models. Keras has no nodes of a layer with different numbers of outputs.

    Args:
        model: `keras.Model`, or its config: see `Chunkwise`, as for the arguments of the call and for what it returns.
    """

    def __init__(self, model: keras.Model | Config, **kwargs: object) -> None:
        # No autocast: the cache keeps its dtypes.
        super().__init__(autocast=False, **kwargs)
        self.model = keras.saving.deserialize_keras_object(model) if isinstance(model, dict) else model
        self._steps = Chunkwise(self.model)
        self.built = True

    def call(self, samples: Tensor, padding_mask: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        return self._steps(samples, padding_mask, cache)

    def compute_output_spec(
        self, samples: Tensor, padding_mask: Tensor, cache: Cache
    ) -> tuple[keras.KerasTensor, Cache]:
        shape = (samples.shape[0], self._steps.chunk_length, *self.model.output.shape[2:])
        return keras.KerasTensor(shape, self.model.output.dtype), cache_spec(cache)

    def get_config(self) -> Config:
        return {**super().get_config(), "model": model_record(self.model)}


def _reads_chunks(node: Node) -> bool:
    return bool(getattr(node.operation, "reads_chunks", False))


def _where_row(is_active: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Returns the rows of `new` where `is_active` `(B,)`, and of `old` elsewhere."""
    shape = (-1, *(1,) * (len(new.shape) - 1))
    return ops.where(ops.reshape(is_active, shape), new, ops.cast(old, new.dtype))
