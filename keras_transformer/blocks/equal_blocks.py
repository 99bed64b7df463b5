"""Equal blocks of a model in training: TensorFlow traces one of them, and all call what is traced."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import keras

from keras_transformer.attention.capture import is_capturing
from keras_transformer.backend import keras_private
from keras_transformer.backend.compilation.equal_layers import key_of
from keras_transformer.backend.compilation.layer_call import LayerCall
from keras_transformer.backend.compilation.shared_trace import SharedTrace, can_share_traces
from keras_transformer.blocks.block import Block

# Fewer take about as long to trace as the function and its calls.
_FEWEST = 4


@contextlib.contextmanager
def equal_blocks_traced_once(
    model: keras.layers.Layer, kinds: dict[int, Hashable] | None = None, inlined: bool = False
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
    traces: dict[Hashable, SharedTrace] = {}

    def wrap(block: Block, call: Callable[..., object]) -> Callable[..., Any]:
        def call_trace(*args: object, **kwargs: object) -> Any:
            if not (kwargs.get("training") and can_share_traces()) or is_capturing():
                return call(*args, **kwargs)
            found = LayerCall.of((args, kwargs))
            try:
                key = kinds[id(block)], found.key
            except TypeError:  # An argument that is not known by its value, such as an array.
                return call(*args, **kwargs)
            if key not in traces:
                traces[key] = SharedTrace(
                    block, lambda *tensors: _applied(call, found, tensors), found.tensors, inlined
                )
            return traces[key](block, found.tensors) if traces[key].is_shared else call(*args, **kwargs)

        return call_trace

    with keras_private.wrapped_calls(_blocks(model, kinds), wrap):
        yield


def _applied(call, arguments, tensors):
    args, kwargs = arguments.filled(tensors)
    return call(*args, **kwargs)


def find_equal_blocks(model: keras.layers.Layer) -> dict[int, Hashable]:
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


def kind(block: keras.layers.Layer) -> Hashable:
    """Returns what determines the training of a block apart from the values of its weights, which equal blocks share.

    That is what `backend.equal_layers` says of its computation, which of its weights are trained, and the plain attributes
    of its parts, which may have changed since it was built.
    """
    parts = keras_private.flatten_layers(block)
    key = key_of(block, parts[1:])
    if key is None:
        return id(block)
    trained = {id(weight) for weight in block.trainable_variables}
    return key, tuple(id(weight) in trained for weight in block.variables), tuple(map(_attributes, parts))


def _attributes(layer):
    found = [(name, value) for name, value in vars(layer).items() if isinstance(value, bool | int | float | str | None)]
    return tuple(sorted((name, repr(value)) for name, value in found if "name" not in name and "path" not in name))


def _blocks(model, kinds):
    blocks = {id(layer): layer for layer in keras_private.flatten_layers(model)}
    # One whose call is replaced is not equal to others.
    return [block for key, block in blocks.items() if key in kinds and "call" not in vars(block)]
