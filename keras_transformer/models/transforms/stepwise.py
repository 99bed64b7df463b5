"""Token-by-token execution of a Functional backbone with a cache."""

from __future__ import annotations

from collections.abc import Collection

import keras
from keras import ops

from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.attention.cache.quantized import SCALE
from keras_transformer.attention.masks import length_mask
from keras_transformer.backend import keras_private
from keras_transformer.backend.call_arguments import takes
from keras_transformer.models.building.prefill_exit import PrefillExit
from keras_transformer.models.transforms.graph_walk import argument, walk
from keras_transformer.models.transforms.token_probe import check_per_token
from keras_transformer.utils.types import Cache, DType, Shape, Tensor

SOURCE_MASK = "source_padding_mask"
# Cache entries of `memory_cache` of a decoder block; other layers list theirs in `memory_names`.
CROSS = ("cross_key", "cross_value")
# Sources of models that have the inputs of a decoder.
_BESIDE_TEXT = ("images", "patches", "patch_grid")


class Stepwise:
    """Runs a causal backbone on new tokens, with the past in a cache.

    Works for any Functional graph: a layer with `init_cache` is called with its part of the cache, and a layer that takes
    `positions` with the positions of the tokens. All others must compute each token independently, which is checked. In
    an encoder-decoder, and in a model of text and images, layers that depend only on the source run once, in `encode`.

    Args:
        backbone: Functional `keras.Model` from "token_ids" and "padding_mask" to `(B, T, D)`; or from "target_token_ids",
            "target_padding_mask" and a source: "source_token_ids" and "source_padding_mask", or "features"; or from
            "token_ids", "padding_mask" and "images", or "patches" and "patch_grid".

    Call arguments:
        token_ids: int32 `(B, T)`: new tokens.
        cache: dict of tensors, batch first, as `init_cache` returns; in an encoder-decoder merged with the result
            of `encode`.
        cache_index: int32 `()` or `(B,)`: number of tokens that each row has read before.
        lengths: int32 `(B,)`: number of real new tokens, before padding on the right; None for all.
        last_only: bool. Whether only the last real token of each row is needed, as in prefill: a model with a
            `PrefillExit` then returns `(B, 1, D)`. Other models ignore it. Default False.

    Returns:
        `(output, cache)`: float `(B, T, D)`, and the next cache.

    Raises:
        ValueError: the model has other inputs, has no layer with a cache, has an operation without one that mixes tokens
            (the message names it), or has a cache after a `PrefillExit`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.models import Decoder, Size
    >>> steps = Stepwise(Decoder(Size(1, 8, 2, 16), vocabulary_size=10))
    >>> output, cache = steps(np.array([[1, 2]], "int32"), steps.init_cache(1, max_length=4), cache_index=0)
    >>> tuple(output.shape), {name: tuple(tensor.shape) for name, tensor in cache.items()}
    ((1, 2, 8), {'decoder_block_0_key': (1, 2, 4, 4), 'decoder_block_0_value': (1, 2, 4, 4)})
    """

    def __init__(self, backbone: keras.Model) -> None:
        self.backbone = backbone
        self._inputs = {tensor.name: tensor for tensor in keras.tree.flatten(backbone.input)}
        self.source_names = source_names(self._inputs)
        self.is_encoder_decoder = bool(self.source_names)
        side = "target_" if "target_token_ids" in self._inputs else ""
        self._token_ids, self._padding_mask = f"{side}token_ids", f"{side}padding_mask"
        if self._token_ids not in self._inputs:
            raise ValueError(f"{backbone.name!r} takes no {self._token_ids!r}; its inputs are {sorted(self._inputs)}.")
        self._source_nodes, self._target_nodes = self._split()
        self._check_per_token()
        self._caches = self._name_caches()
        self._behind_exit = self._find_exits()

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns an empty cache for `max_length` tokens: dict of `LAYER_NAME` to tensors, batch first."""
        return {
            f"{prefix}_{name}": tensor
            for prefix, layer, _ in self._caches.values()
            for name, tensor in layer.init_cache(batch_size, max_length, dtype).items()
        }

    def encode(self, *source: Tensor) -> Cache:
        """Runs the encoder once.

        Args:
            *source: the inputs in `source_names`: token ids, int32 `(B, S)`, and padding mask, boolean `(B, S)`; or
                features.

        Returns:
            dict of tensors, batch first, to merge with the cache: the padding mask, if any, and the keys and values of
            cross-attention.
        """
        given = dict(zip(self.source_names, source, strict=True))
        mask = {SOURCE_MASK: given[SOURCE_MASK]} if SOURCE_MASK in given else {}
        return mask | self._memory(self._source_values(source))

    @property
    def encoder_shape(self) -> Shape:
        """Shape of `encoder_output`: `(None, S, D)`.

        Raises:
            ValueError: the decoder reads several outputs of the encoder.
        """
        return tuple(self._encoder_symbol().shape)

    def encoder_output(self, *source: Tensor) -> Tensor:
        """Returns the output of the encoder, of which `memory` makes the rest of what `encode` returns."""
        return self._source_values(source)[id(self._encoder_symbol())]

    def memory(self, encoder_output: Tensor) -> Cache:
        """Returns the keys and values of cross-attention for an output of the encoder, `(B, S, D)`."""
        return self._memory({id(self._encoder_symbol()): encoder_output})

    def _source_values(self, source):
        """The tensors that depend only on the source, from symbolic tensor (by id) to tensor."""
        values = {id(self._inputs[name]): tensor for name, tensor in zip(self.source_names, source, strict=True)}
        walk(self._source_nodes, values, lambda node, layer, args, kwargs: layer(*args, **kwargs))
        return values

    def _memory(self, values):
        memory = {}
        for node in self._target_nodes:
            prefix, layer, _ = self._caches.get(id(node), (None, None, None))
            encoder_output = prefix and argument(node, "encoder_output", values)
            if encoder_output is not None:
                parts = layer.memory_cache(encoder_output)
                memory |= {f"{prefix}_{name}": tensor for name, tensor in parts.items()}
        return memory

    def _encoder_symbol(self):
        """The one symbolic tensor that layers with a cache read as `encoder_output`."""
        nodes = [node for node in self._target_nodes if id(node) in self._caches]
        symbols = [argument(node, "encoder_output", {id(each): each for each in node.input_tensors}) for node in nodes]
        found = {id(each): each for each in symbols if each is not None}
        if len(found) != 1:
            raise ValueError(
                f"the decoder of {self.backbone.name!r} reads {len(found)} outputs of an encoder, not one."
            )
        return next(iter(found.values()))

    @property
    def target_layers(self) -> list[keras.layers.Layer]:
        """list: the layers that depend on the tokens, not only on the source."""
        return [node.operation for node in self._target_nodes if isinstance(node.operation, keras.layers.Layer)]

    @property
    def cache_is_rewindable(self) -> bool:
        """bool: whether the cache supports an earlier `cache_index`, as speculative decoding needs."""
        return all(getattr(layer, "cache_is_rewindable", True) for _, layer, _ in self._caches.values())

    @property
    def has_prefill_exit(self) -> bool:
        """bool: whether prefill returns only the last token of each row: see `PrefillExit`."""
        return bool(self._behind_exit)

    def __call__(
        self,
        token_ids: Tensor,
        cache: Cache,
        cache_index: Tensor,
        lengths: Tensor | None = None,
        last_only: bool = False,
    ) -> tuple[Tensor, Cache]:
        padding_mask = None if lengths is None else length_mask(lengths, ops.shape(token_ids)[1])
        slots = token_slots(cache_index, ops.shape(token_ids)[1])
        last_slot = slots[:, -1:] if lengths is None else token_slots(cache_index, 1) + ops.expand_dims(lengths - 1, 1)
        next_cache = dict(cache)
        values = {id(self._inputs[self._token_ids]): token_ids}
        if SOURCE_MASK in self._inputs:
            values[id(self._inputs[SOURCE_MASK])] = cache[SOURCE_MASK]

        def call(node, layer, args, kwargs):
            if id(node) in self._caches:
                prefix, _, names = self._caches[id(node)]
                own = {name: cache[f"{prefix}_{name}"] for name in names if f"{prefix}_{name}" in cache}
                if not getattr(layer, "cache_is_rewindable", True):
                    kwargs["padding_mask"] = padding_mask
                output, own = layer(*args, **kwargs, cache=own, cache_index=cache_index)
                next_cache.update({f"{prefix}_{name}": tensor for name, tensor in own.items()})
                return output
            if last_only and isinstance(layer, PrefillExit):
                return layer.last(*args, lengths=lengths)
            if takes(layer, "positions"):
                kwargs["positions"] = last_slot if last_only and id(node) in self._behind_exit else slots
            return layer(*args, **kwargs)

        walk(self._target_nodes, values, call)
        return values[id(keras.tree.flatten(self.backbone.output)[0])], next_cache

    def _split(self):
        """The nodes that depend only on the source, and the others, each in the order of computation."""
        nodes = keras_private.nodes_in_order(self.backbone)
        target_tensors = {
            id(self._inputs[name]) for name in (self._token_ids, self._padding_mask) if name in self._inputs
        }
        source, target = [], []
        for node in nodes:
            if any(id(tensor) in target_tensors for tensor in node.input_tensors):
                target_tensors.update(id(tensor) for tensor in node.outputs)
                target.append(node)
            else:
                source.append(node)
        return source, target

    def _check_per_token(self):
        """Raises an error for operations that mix tokens without a cache."""
        tokens = self._inputs[self._token_ids]
        constants = {}
        if SOURCE_MASK in self._inputs:
            constants[id(self._inputs[SOURCE_MASK])] = ops.ones((2, 3), "bool")
        check_per_token(
            self._target_nodes,
            {id(tokens): tokens},
            constants,
            keras.tree.flatten(self.backbone.output)[0],
            has_cache=lambda node: hasattr(node.operation, "init_cache"),
            takes_positions=lambda node: takes(node.operation, "positions"),
        )

    def _name_caches(self):
        """For each node with a cache: its unique name, its layer, and the possible names of its cache entries."""
        caches, seen = {}, {}
        for node in self._target_nodes:
            layer = node.operation
            if hasattr(layer, "init_cache"):
                seen[layer.name] = seen.get(layer.name, 0) + 1
                # A layer that is called several times has a cache for each call.
                prefix = layer.name if seen[layer.name] == 1 else f"{layer.name}_again_{seen[layer.name]}"
                names = tuple(layer.init_cache(1, 1))
                names += tuple(f"{name}{SCALE}" for name in names)
                caches[id(node)] = (prefix, layer, (*names, *getattr(layer, "memory_names", CROSS)))
        if not caches:
            raise ValueError(f"{self.backbone.name!r} has no layer with a cache.")
        return caches

    def _find_exits(self):
        """The nodes (by id) from a `PrefillExit` on."""
        behind, tensors = set(), set()
        for node in self._target_nodes:
            is_exit = isinstance(node.operation, PrefillExit)
            if is_exit or any(id(tensor) in tensors for tensor in node.input_tensors):
                if id(node) in self._caches:
                    raise ValueError(
                        f"{node.operation.name!r} follows a PrefillExit but has a cache, which needs all tokens."
                    )
                behind.add(id(node))
                tensors.update(id(tensor) for tensor in node.outputs)
        return behind


def source_names(names: Collection[str]) -> tuple[str, ...]:
    """Names of the source inputs: those of the encoder, token ids before their mask; images of a model of text and images;
    none for other models."""
    if "target_token_ids" not in names:
        return tuple(name for name in _BESIDE_TEXT if name in names)
    return tuple(
        sorted((name for name in names if not name.startswith("target_")), key=lambda name: name == SOURCE_MASK)
    )
