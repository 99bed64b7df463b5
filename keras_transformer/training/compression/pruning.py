"""Structured pruning: an ordinary smaller model, without the heads, units and blocks that matter least."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import keras
import numpy as np

from keras_transformer.attention import SoftmaxAttention
from keras_transformer.backend import keras_private
from keras_transformer.positions import AxialRotary, GridRotary, MultimodalRotary, Rotary, ShawRelative, XPos
from keras_transformer.training.compression.importance import (
    Importance,
    attention_layers,
    block_layers,
    feedforward_layers,
    measure_importance,
)
from keras_transformer.training.compression.removed_blocks import without_blocks
from keras_transformer.training.errors import PruningError
from keras_transformer.utils.serialization import model_record
from keras_transformer.utils.types import Tensor

# Positions that are the same for every head.
_POSITIONS = (Rotary, MultimodalRotary, AxialRotary, GridRotary, XPos, ShawRelative)


def prune(
    model: keras.Model,
    *,
    heads: float = 0.0,
    feedforward_units: float = 0.0,
    blocks: int = 0,
    data: Iterable[object] | None = None,
    loss: str | Callable[..., Tensor] | None = None,
    importance: Importance | None = None,
) -> keras.Model:
    """Returns a smaller copy of a model, without the heads, feed-forward units and blocks that matter least.

    The copy is an ordinary model of the same class with the kept weights: train it on, or let it learn from the whole model
    with `Distillation`. Blocks are removed first; each of the others then loses the same share of its heads and units. The
    heads of a key/value head go together.

    Args:
        model: `keras.Model`, Functional: `models.Decoder`, `Encoder`, `ViT`, `Transformer` and those like them, with or
            without a head. It is not changed.
        heads: float in [0, 1): the share of heads to remove, rounded down, of each attention. Default 0.
        feedforward_units: float in [0, 1): the share of hidden units to remove, rounded down, of each feed-forward.
            Default 0.
        blocks: int >= 0: the number of blocks to remove. Default 0.
        data: iterable of batches `(x, y)` to measure the importance on; see `measure_importance`.
        loss: as for `measure_importance`.
        importance: `Importance` that was measured before, in place of `data`. Default None.

    Returns:
        The copy.

    Raises:
        PruningError: nothing to remove, or no data; a layer whose heads or units are not independent, such as attention with
            ALiBi; all blocks, or a block that is called several times.

    Example:

    >>> from keras_transformer import models
    >>> model = models.ViT(models.Size(3, 16, 4, 32), patch_size=4, image_size=8)
    >>> batches = [(np.ones((2, 8, 8, 3)), np.zeros((2, 5, 16)))]
    >>> small = prune(model, heads=0.25, feedforward_units=0.5, blocks=1, data=batches, loss="mean_squared_error")
    >>> [(layer.mixer.num_heads, layer.feedforward.intermediate_dim) for layer in small.layers if "block" in layer.name]
    [(3, 16), (3, 16)]

    Reference: Michel et al., arXiv 1905.10650; Molchanov et al., arXiv 1906.10771. Deviation: the same share of each layer,
    where both rank the parts of all layers together, so that the layers stay alike.
    """
    _check(model, heads, feedforward_units, blocks)
    found = _measured(model, data, loss, importance)
    gone = set(sorted(found.blocks, key=found.blocks.__getitem__)[:blocks])
    lost = {
        id(layer)
        for block in block_layers(model)
        if block.name in gone
        for layer in keras_private.flatten_layers(block)
    }
    attentions = [layer for layer in attention_layers(model) if id(layer) not in lost] if heads else []
    feedforwards = [layer for layer in feedforward_layers(model) if id(layer) not in lost] if feedforward_units else []
    kept_heads = {id(layer): _kept(found.heads[layer.path], heads) for layer in attentions}
    kept_units = {id(layer): _kept(found.feedforward_units[layer.path], feedforward_units) for layer in feedforwards}
    with _resized(attentions, kept_heads, feedforwards, kept_units):
        record = model_record(model)
    small = keras.saving.deserialize_keras_object(without_blocks(record, gone), safe_mode=False)
    cuts: dict[str, tuple[int, np.ndarray]] = {}
    for layer in attentions:
        cuts |= _cuts_of_attention(layer, kept_heads[id(layer)])
    for layer in feedforwards:
        cuts |= _cuts_of_feedforward(layer, kept_units[id(layer)])
    _copy(model, small, cuts)
    if getattr(model, "tokenizer", None) is not None:
        small.tokenizer = model.tokenizer
    return small


def _measured(model, data, loss, found):
    if found is not None:
        return found
    if data is None:
        raise PruningError("prune needs data to measure importance on, or an Importance that was measured before")
    return measure_importance(model, data, loss)


def _check(model, heads, units, blocks):
    if not isinstance(model, keras.Model) or not getattr(model, "inputs", None):
        raise PruningError(f"prune takes a Functional model. Received: {model!r}")
    for name, share in {"heads": heads, "feedforward_units": units}.items():
        if not 0 <= share < 1:
            raise PruningError(f"{name} must be a share in [0, 1). Received: {share!r}")
    found = block_layers(model)
    if not isinstance(blocks, int) or not 0 <= blocks < max(len(found), 1):
        raise PruningError(f"blocks must be in [0, {len(found)}), of {len(found)} blocks. Received: {blocks!r}")
    if not (heads or units or blocks):
        raise PruningError("nothing to remove: give heads, feedforward_units or blocks")
    if getattr(model, "aware_settings", None) is not None:
        raise PruningError(f"{model.name!r} is quantization-aware: prune the ordinary model first")
    adapted = next((each for each in keras_private.flatten_layers(model) if getattr(each, "lora_enabled", False)), None)
    if adapted is not None:
        raise PruningError(f"{adapted.path!r} has an adapter: call merge_lora first")
    for layer in attention_layers(model) if heads else ():
        _check_heads(layer)
    for layer in feedforward_layers(model) if units else ():
        if layer.hidden_norm is not None:
            raise PruningError(f"{layer.path!r} has a norm over its hidden units, which then depend on each other")


def _check_heads(layer):
    reasons = {
        f"its position is {type(layer.position).__name__}": not isinstance(layer.position, (*_POSITIONS, type(None))),
        f"its mechanism is {type(layer.mechanism).__name__}": type(layer.mechanism) is not SoftmaxAttention,
        "its mechanism has weights": any("seed" not in weight.path for weight in layer.mechanism.weights),
        "it has a norm of all heads": layer.context_norm is not None,
        "it has one key/value head": layer.num_key_value_heads == 1,
    }
    reason = next((reason for reason, is_true in reasons.items() if is_true), None)
    if reason is not None:
        raise PruningError(f"the heads of {layer.path!r} cannot be removed: {reason}")


def _kept(scores, share):
    """The indices of the parts to keep, in order; at least one."""
    count = len(scores) - min(int(share * len(scores) + 1e-9), len(scores) - 1)
    return np.sort(np.argsort(-scores, kind="stable")[:count])


@contextlib.contextmanager
def _resized(attentions, kept_heads, feedforwards, kept_units) -> Iterator[None]:
    """Context in which the configs of the layers have the numbers of what is kept."""
    before = [(layer, layer._num_heads, layer._num_key_value_heads) for layer in attentions]
    widths = [(layer, layer.intermediate_dim) for layer in feedforwards]
    try:
        for layer, heads, groups in before:
            kept = len(kept_heads[id(layer)])
            layer._num_heads, layer._num_key_value_heads = heads // groups * kept, kept
        for layer, _ in widths:
            layer.intermediate_dim = len(kept_units[id(layer)])
        yield
    finally:
        for layer, heads, groups in before:
            layer._num_heads, layer._num_key_value_heads = heads, groups
        for layer, width in widths:
            layer.intermediate_dim = width


def _cuts_of_attention(layer, groups):
    """By the path of a weight: the axis of the heads, and the indices to keep."""
    size = layer.num_heads // layer.num_key_value_heads
    queries = (groups[:, None] * size + np.arange(size)).reshape(-1)
    cuts = {keras_private.kernel(layer.output_dense).path: (0, queries)}
    sides = [
        (layer.query_dense, queries),
        (layer._gate_dense, queries),
        (layer.key_dense, groups),
        (layer.value_dense, groups),
    ]
    for dense, indices in sides:
        if dense is not None:
            cuts |= _cuts_of_outputs(dense, indices)
    return cuts


def _cuts_of_feedforward(layer, units):
    cuts = {keras_private.kernel(layer._output_dense).path: (0, units)}
    for dense in (layer._hidden_dense, getattr(layer, "_gate_dense", None)):
        if dense is not None:
            cuts |= _cuts_of_outputs(dense, units)
    return cuts


def _cuts_of_outputs(dense, indices):
    cuts = {keras_private.kernel(dense).path: (1, indices)}
    return cuts if dense.bias is None else cuts | {dense.bias.path: (0, indices)}


def _copy(model, small, cuts):
    """Gives the smaller model the kept weights."""
    values = {weight.path: weight for weight in model.weights}
    for weight in small.weights:
        value = keras.ops.convert_to_numpy(values[weight.path])
        if weight.path in cuts:
            axis, indices = cuts[weight.path]
            value = np.take(value, indices, axis=axis)
        if value.shape != tuple(weight.shape):
            raise PruningError(f"{weight.path!r} of shape {value.shape} does not fit the smaller model")
        weight.assign(value)
