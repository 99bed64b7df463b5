"""From a `LanguageModel` to an export spec: `prefill` and `decode` with the cache as named inputs and outputs, and more."""

import dataclasses
import zlib

import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.formats import formats_with
from keras_transformer.export.spec.export_spec import DEFAULT_TOLERANCE, ArraySpec, ExportSpec, Probe, Signature
from keras_transformer.export.spec.functional import fill_references
from keras_transformer.export.spec.operation_origin import layer_of
from keras_transformer.tasks.decoding.generate_graph import generate_graph

_TOKENS = "source_token_ids"
_UNBOUNDED = 512
_BUCKETS = (32, 128)
_FOR_FIXED_SHAPES = formats_with("takes_fixed_shapes")
_FOR_SINGLE_TOKENS = formats_with("takes_single_tokens")


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """How a language model is exported.

    Args:
        whole_graph: bool. Whether to write `generate` too: greedy decoding with its loop inside the graph.
        static_length: int: the slots of the cache in the signatures of fixed shapes (TFLite); None for all that the
            model can hold, or 512 where it has no end.
        prefill_buckets: the lengths of prompts, or of sources, that have signatures of fixed shapes (TFLite).
    """

    whole_graph: bool = True
    static_length: int | None = None
    prefill_buckets: tuple = _BUCKETS


def language_spec(model, tolerance=DEFAULT_TOLERANCE, options=None):
    """Export spec of a `LanguageModel`.

    Signatures: `encode` (encoder-decoder), `prefill`, `decode` and `generate`, with dynamic batch and lengths; for ONNX
    also `decode_token`, of one token a row; for TFLite also `prefill_32`, `prefill_128`, ... and `decode_1`, of fixed shapes
    for one row; of an encoder-decoder `encode_32`, ... and `decode_1_32`, ..., by the length of the source, or, where that
    is no text, `decode_1`, and `encode_1` if all sources are of one length; of a model of text and images `decode_1_1`, for
    one image.

    Args:
        model: the model, float32, on the TensorFlow backend.
        tolerance: largest difference allowed, as a share of each output's scale.
        options: `GenerationOptions`, or None for its defaults.

    Returns:
        An `ExportSpec` whose probes hold what the Keras model computes.

    Raises:
        InvalidModelError: the model read token by token is not the model read whole.
    """
    options = options or GenerationOptions()
    check_stepwise(model, tolerance)
    builder = _Builder(model)
    signatures = {"encode": builder.encode()} if model.is_encoder_decoder else {}
    signatures |= {"prefill": builder.prefill(), "decode": builder.decode(), "decode_token": builder.decode_token()}
    if options.whole_graph:
        signatures["generate"] = builder.generate()
    length = static_length(model, options)
    if model.is_encoder_decoder and model.takes_prompts:
        signatures["decode_1_1"] = builder.static_decode(length, source_length=1)
    elif model.source_shape is not None:
        signatures["decode_1"] = builder.static_decode(length)
        if None not in model.source_shape:
            signatures["encode_1"] = builder.static_encode()
    else:
        for bucket in sorted({min(bucket, length) for bucket in options.prefill_buckets}):
            signatures |= builder.static(bucket, length)
    if not model.is_encoder_decoder:
        signatures["decode_1"] = builder.static_decode(length)
    for signature in signatures.values():
        fill_references(signature)
    layers = {layer.name: layer for layer in keras_private.flatten_layers(model, include_self=False)}
    locate = lambda op, node: layer_of(op, node, layers, [])  # noqa: E731
    limits = dict.fromkeys(("length", "cache_length"), model.max_length) if model.max_length else {}
    record = model.generation_spec.to_dict()
    return ExportSpec(signatures, tolerance, locate, tuple(model.variables), record, axis_limits=limits)


def static_length(model, options):
    """The slots of the cache in signatures of fixed shapes."""
    return options.static_length or model.max_length or _UNBOUNDED


def check_stepwise(model, tolerance):
    """Refuses a model that, read in steps with its cache, is not what it is when read whole.

    Raises:
        InvalidModelError: gives the difference.
    """
    builder = _Builder(model)
    batch, length, source_length = 2, min(6, model.max_length or 6), 5
    token_ids = builder.tokens("whole", (batch, length))
    mask = np.ones((batch, length), bool)
    if model.is_encoder_decoder:
        source = builder.source(batch, source_length)
        side = "" if model.takes_prompts else "target_"
        inputs = {**source, f"{side}token_ids": token_ids, f"{side}padding_mask": mask}
        cache = {**builder.cache(batch, length), **model.encode(*source.values())}
    else:
        inputs, cache = {"token_ids": token_ids, "padding_mask": mask}, builder.cache(batch, length)
        one_document = {"segment_ids": np.ones_like(token_ids), "positions": np.cumsum(mask, 1, dtype="int32") - 1}
        inputs |= {tensor.name: one_document[tensor.name] for tensor in model.inputs if tensor.name in one_document}
        # What else it takes is empty, as it is in an empty cache: neighbors that were retrieved.
        others = (tensor for tensor in model.inputs if tensor.name not in inputs)
        inputs |= {each.name: np.zeros((batch, *(size or 1 for size in each.shape[1:])), each.dtype) for each in others}
    whole = np.asarray(model(inputs, training=False))
    half = length // 2
    first, _, cache = model.prefill(token_ids[:, :half], np.full(batch, half, "int32"), cache)
    rest, _, _ = model.decode_step(token_ids[:, half:], cache, np.full(batch, half, "int32"))
    stepwise = np.concatenate([first, rest], axis=1)
    difference = np.abs(stepwise - whole[:, half - 1 :]).max() / max(np.abs(whole).max(), 1e-6)
    if not difference <= tolerance:
        raise InvalidModelError(
            f"model '{model.name}' read token by token differs from itself read whole by {difference:.1e} of the scale"
        )


class _Builder:
    """Makes the signatures of one model."""

    def __init__(self, model):
        self.model = model
        self.is_encoder_decoder = model.is_encoder_decoder
        self.takes_prompts = model.takes_prompts
        # Where images stand in the text, probes have one.
        self._begin_ids = [layer.begin_id for layer in model.stepwise.target_layers if hasattr(layer, "begin_id")]
        self.cache_specs = _cache_specs(model)
        self.memory_specs = _memory_specs(self) if self.is_encoder_decoder else ()

    # Arrays for probes: they depend on the names and shapes alone.

    def tokens(self, label, shape):
        random = np.random.default_rng(zlib.crc32(f"{label} {shape}".encode()))
        token_ids = random.integers(0, self.model.vocabulary_size, shape).astype("int32")
        if self._begin_ids and shape[1] > 1:
            token_ids[:, 0] = self._begin_ids[0]
        return token_ids

    def source(self, batch, length):
        shape = self.model.source_shape
        if shape is not None:
            random = np.random.default_rng(zlib.crc32(f"source {batch}".encode()))
            # Images are many tokens each.
            length = -(-length // 5) if self.takes_prompts else length
            sizes = (batch, *(length if size is None else size for size in shape))
            return {name: random.normal(size=sizes).astype("float32") for name in self.model.source_names}
        lengths = np.array([length - row % max(length // 2, 1) for row in range(batch)])
        mask = np.arange(length) < lengths[:, None]
        return dict(zip(self.model.source_names, (self.tokens("source", (batch, length)), mask), strict=True))

    def cache(self, batch, length):
        return {name: np.asarray(tensor) for name, tensor in self.model.init_cache(batch, length).items()}

    def memory(self, batch, length=5):
        if not self.is_encoder_decoder:
            return {}
        return _arrays(self.model.encode(*self.source(batch, length).values()))

    def read(self, batch, prompt, length, source_length):
        """A prompt of unequal lengths that has been read: its lengths and the cache."""
        prompt = min(prompt, length - 1)
        lengths = np.array([max(prompt - row, 1) for row in range(batch)], "int32")
        cache = {**self.cache(batch, length), **self.memory(batch, source_length)}
        _, _, cache = self.model.prefill(self.tokens("prompt", (batch, prompt)), lengths, cache)
        return lengths, _arrays(cache)

    # Signatures.

    def encode(self):
        def encode(tensors):
            return dict(self.model.encode(*(tensors[name] for name in self.model.source_names)))

        probes = [Probe(self.source(batch, length), _label(batch, length)) for batch, length in ((1, 5), (3, 9))]
        return Signature(encode, self._source_specs(), probes)

    def prefill(self):
        inputs = (*_ids("length"), _lengths("lengths"), *self.cache_specs, *self.memory_specs)
        probes = [self._prefill_probe(*sizes) for sizes in self._sizes(((1, 4, 9), (3, 7, 16)))]
        return Signature(self._run(self.model.prefill, "lengths"), inputs, probes)

    def decode(self):
        inputs = (*_ids("length"), _lengths("cache_index"), *self.cache_specs, *self.memory_specs)
        sizes = self._sizes(((1, 1, 9), (3, 1, 16), (2, 3, 12)))
        return Signature(
            self._run(self.model.decode_step, "cache_index"), inputs, [self._decode_probe(*each) for each in sizes]
        )

    def decode_token(self):
        """`decode` for one token a row: with less to find out while running it is faster."""
        ids = (ArraySpec("token_ids", "int32", (None, 1), ("batch", None)),)
        inputs = (*ids, _lengths("cache_index"), *self.cache_specs, *self.memory_specs)
        probes = [self._decode_probe(*each) for each in self._sizes(((1, 1, 9), (3, 1, 16)))]
        return Signature(
            self._run(self.model.decode_step, "cache_index"),
            inputs,
            probes,
            formats=_FOR_SINGLE_TOKENS,
        )

    def static(self, bucket, length):
        """For prompts of at most so many tokens; in an encoder-decoder for such sources."""
        if not self.is_encoder_decoder:
            prefill = self._run(self.model.prefill, "lengths")
            return {f"prefill_{bucket}": _static(prefill, self._prefill_probe(1, bucket, length))}
        # The one token that a decoder begins with is read by the same step as any other.
        return {
            f"encode_{bucket}": self.static_encode(bucket),
            f"decode_1_{bucket}": self.static_decode(length, bucket),
        }

    def static_encode(self, source_length=5):
        return _static(self.encode().function, Probe(self.source(1, source_length), _label(1, source_length)))

    def static_decode(self, length, source_length=5):
        probe = self._decode_probe(1, 1, length, source_length)
        return _static(self._run(self.model.decode_step, "cache_index"), probe)

    def generate(self):
        source = self._source_specs() if self.is_encoder_decoder else ()
        prompts = (*_ids("length"), _lengths("lengths")) if self.takes_prompts else ()
        inputs = (*source, *prompts, ArraySpec("max_new_tokens", "int32", (), ()))
        probes = []
        for batch, length, new in ((1, 3, 5), (3, 6, 4)):
            length = min(length, (self.model.max_length or length + new) - new)
            arrays = self.source(batch, length) if self.is_encoder_decoder else {}
            if self.takes_prompts:
                lengths = np.array([max(length - row, 1) for row in range(batch)], "int32")
                arrays |= {"token_ids": self.tokens("generate", (batch, length)), "lengths": lengths}
            probes.append(Probe({**arrays, "max_new_tokens": np.array(new, "int32")}, _label(batch, length)))
        return Signature(generate_graph(self.model), inputs, probes)

    def _run(self, function, index):
        given = {spec.name for spec in self.memory_specs}

        def run(tensors):
            cache = {name: tensors[name] for name in (spec.name for spec in (*self.cache_specs, *self.memory_specs))}
            logits, hidden_states, cache = function(tensors["token_ids"], *_ordered(function, tensors[index], cache))
            cache = {name: tensor for name, tensor in cache.items() if name not in given}
            return {"logits": logits, "hidden_states": hidden_states, **cache}

        return run

    def _prefill_probe(self, batch, prompt, length):
        lengths = np.array([max(prompt - 2 * row, 1) for row in range(batch)], "int32")
        arrays = {"token_ids": self.tokens("prefill", (batch, prompt)), "lengths": lengths}
        return Probe({**arrays, **self.cache(batch, length), **self.memory(batch)}, _label(batch, prompt, length))

    def _decode_probe(self, batch, new, length, source_length=5):
        index, cache = self.read(batch, min(5, length - new), length, source_length)
        arrays = {"token_ids": self.tokens("decode", (batch, new)), "cache_index": index}
        return Probe({**arrays, **cache}, _label(batch, new, length))

    def _sizes(self, sizes):
        """(batch, tokens, slots) within what the model can hold."""
        most = self.model.max_length
        return [(b, t if most is None else min(t, most), n if most is None else min(n, most)) for b, t, n in sizes]

    def _source_specs(self):
        shape = self.model.source_shape
        if shape is not None:
            own = ((None, *shape), ("batch", *(None if size else "source_length" for size in shape)))
            return tuple(ArraySpec(name, "float32", *own) for name in self.model.source_names)
        own = ((None, None), ("batch", "source_length"))
        return tuple(ArraySpec(name, "int32" if name == _TOKENS else "bool", *own) for name in self.model.source_names)


def _static(function, probe):
    """A signature of the very shapes of a probe, for TFLite."""
    inputs = tuple(
        ArraySpec(name, str(array.dtype), array.shape, (None,) * array.ndim) for name, array in probe.inputs.items()
    )
    return Signature(function, inputs, [probe], formats=_FOR_FIXED_SHAPES)


def _ordered(function, index, cache):
    """`prefill` takes the lengths before the cache, `decode_step` the index after it."""
    return (index, cache) if function.__name__ == "prefill" else (cache, index)


def _ids(axis):
    return (ArraySpec("token_ids", "int32", (None, None), ("batch", axis)),)


def _lengths(name):
    return ArraySpec(name, "int32", (None,), ("batch",))


def _label(batch, length, slots=None):
    return f"batch={batch}, length={length}" + ("" if slots is None else f", cache_length={slots}")


def _arrays(tensors):
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}


def _cache_specs(model):
    """What the cache is made of."""
    return _dynamic_specs(*(model.init_cache(*sizes) for sizes in ((1, 2), (2, 2), (1, 3))), "cache_length")


def _memory_specs(builder):
    """What the decoder reads of the source."""
    sizes = ((1, 5), (2, 5), (1, 6))
    return _dynamic_specs(*(builder.model.encode(*builder.source(*each).values()) for each in sizes), "source_length")


def _dynamic_specs(small, wide, long, axis_name):
    """Specs of tensors by name, given with a small batch and length, with a wider batch, and with a longer length."""
    specs = []
    for name, tensor in _arrays(small).items():
        axes = tuple(
            "batch" if size != wide[name].shape[axis] else axis_name if size != long[name].shape[axis] else None
            for axis, size in enumerate(tensor.shape)
        )
        shape = tuple(None if axis else size for axis, size in zip(axes, tensor.shape, strict=True))
        specs.append(ArraySpec(name, str(tensor.dtype), shape, axes))
    return tuple(specs)
