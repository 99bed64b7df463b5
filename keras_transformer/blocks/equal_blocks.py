"""Equal blocks of a model in training: TensorFlow traces one of them, and all call what is traced."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.capture import is_capturing
from keras_transformer.backend import keras_private
from keras_transformer.backend.shared_trace import SharedTrace, can_share_traces
from keras_transformer.blocks.block import Block
from keras_transformer.utils.types import Tensor

# Fewer take about as long to trace as the function and its calls.
_FEWEST = 4


@contextlib.contextmanager
def equal_blocks_traced_once(
    model: keras.layers.Layer, kinds: dict[int, str] | None = None, inlined: bool = False
) -> Iterator[None]:
    """Context in which a training step that TensorFlow traces has the operations of equal blocks once, in a function.

    The first step of a deep model is traced and optimized sooner, and its graph takes less memory; the values are the same.
    The context has no effect on other backends, with XLA, which compiles each call on its own, on several devices, and on
    blocks that fewer than three others equal.

    Args:
        model: `keras.layers.Layer` with blocks, at any depth.
        kinds: what `find_equal_blocks` returned. Defaults to what it returns now.
        inlined: bool. Whether the graph has the operations of all blocks nevertheless, to be counted. Default False.
    """
    if kinds is None:
        kinds = find_equal_blocks(model) if can_share_traces() else {}
    traces: dict[Any, SharedTrace] = {}

    def wrap(block: Block, call: Callable[..., Any]) -> Callable[..., Any]:
        def call_trace(*args: Any, **kwargs: Any) -> Any:
            arguments = _Arguments(args, kwargs)
            if not (kwargs.get("training") and arguments.can_be_shared and can_share_traces()) or is_capturing():
                return call(*args, **kwargs)
            key = kinds[id(block)], arguments.key
            if key not in traces:
                function = functools.partial(arguments.apply, call)
                traces[key] = SharedTrace(block, function, arguments.tensors, inlined)
            return traces[key](block, arguments.tensors) if traces[key].is_shared else call(*args, **kwargs)

        return call_trace

    with keras_private.wrapped_calls(_blocks(model, kinds), wrap):
        yield


def find_equal_blocks(model: keras.layers.Layer) -> dict[int, str]:
    """Returns the blocks that at least three others equal: from the id of each to its kind, as of `kind`.

    Example:

    >>> from keras_transformer.models import Decoder, Size
    >>> len(find_equal_blocks(Decoder(Size(8, 8, 2, 16), vocabulary_size=10)))
    8
    """
    blocks = [layer for layer in keras_private.flatten_layers(model) if isinstance(layer, Block)]
    inner = {id(part) for block in blocks for part in keras_private.flatten_layers(block, include_self=False)}
    kinds = {id(block): kind(block) for block in blocks if id(block) not in inner}
    counts = Counter(kinds.values())
    return {key: each for key, each in kinds.items() if counts[each] >= _FEWEST}


def kind(block: keras.layers.Layer) -> str:
    """Returns what determines the computation of a block apart from the values of its weights, as text.

    That is the class, the config, the weights and the plain attributes of the block and each of its parts, without names.
    """
    return json.dumps([_part(part) for part in keras_private.flatten_layers(block)], default=_text, sort_keys=True)


def _blocks(model, kinds):
    blocks = {id(layer): layer for layer in keras_private.flatten_layers(model)}
    # One whose call is replaced is not equal to others.
    return [block for key, block in blocks.items() if key in kinds and "call" not in vars(block)]


def _part(layer):
    weights = [
        (weight.shape, weight.dtype, weight.trainable, any(weight is each for each in layer.trainable_variables))
        for weight in layer.variables
    ]
    plain = {
        key: value
        for key, value in vars(layer).items()
        if isinstance(value, bool | int | float | str | None) and "name" not in key and "path" not in key
    }
    # A call that is replaced, for example to observe it, is that of one layer.
    replaced = id(layer) if "call" in vars(layer) else None
    return type(layer).__qualname__, _config(layer), weights, plain, replaced


def _config(layer):
    try:
        return without_names(layer.get_config())
    except NotImplementedError:  # A part that the config of the block describes.
        return None
    except ValueError:  # A part that refuses to be copied, such as one of a quantization-aware model.
        return id(layer)


def _text(value):
    return value.tobytes().hex() if isinstance(value, np.ndarray) else repr(value)


def without_names(config: Any) -> Any:
    """Returns a config, and those in it, without the names of layers."""
    if isinstance(config, dict):
        return {key: without_names(value) for key, value in config.items() if key != "name"}
    return [without_names(each) for each in config] if isinstance(config, list | tuple) else config


class _Arguments:
    """The arguments of a call: its tensors, and a key for everything else.

    Attributes:
        tensors: the tensors, and then the implicit masks of those that have one.
        can_be_shared: whether the key says all about the arguments apart from the values of the tensors.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._structure = args, kwargs
        self._leaves = keras.tree.flatten(self._structure)
        self._places = [index for index, leaf in enumerate(self._leaves) if ops.is_tensor(leaf)]
        given = [self._leaves[index] for index in self._places]
        masks = [keras_private.get_mask(x) for x in given]
        self._masked = [index for index, mask in enumerate(masks) if mask is not None]
        self.tensors: list[Tensor] = [*given, *(masks[index] for index in self._masked)]
        others = [leaf for leaf in self._leaves if not ops.is_tensor(leaf)]
        self.can_be_shared = all(isinstance(leaf, bool | int | float | str | None) for leaf in others)
        skeleton = keras.tree.map_structure(lambda x: "tensor" if ops.is_tensor(x) else repr(x), self._structure)
        self.key = repr(skeleton), tuple((str(x.shape), str(x.dtype)) for x in self.tensors), tuple(self._masked)

    def apply(self, call: Callable[..., Any], *tensors: Tensor) -> Any:
        """Returns the result of a call with other tensors in place of those."""
        leaves = list(self._leaves)
        for index, tensor in zip(self._places, tensors, strict=False):
            leaves[index] = tensor
        for index, mask in zip(self._masked, tensors[len(self._places) :], strict=True):
            keras_private.set_mask(leaves[self._places[index]], mask)
        args, kwargs = keras.tree.pack_sequence_as(self._structure, leaves)
        return call(*args, **kwargs)
