"""Generating from a bundle, with numpy around the runtime: the same loop and samplers as in Keras."""

import contextlib
import functools
import threading

import numpy as np

from keras_transformer.export.bundle.manifest import artifact_path, signature_specs
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.errors import ExportError, InvalidBundleError, RunError
from keras_transformer.export.onnx.binding import Binding, BoundCache
from keras_transformer.export.runtime.runtimes import TFLiteEngine, load_saved_model, onnx_session
from keras_transformer.generation import GenerationSpec, Generator
from keras_transformer.generation.plan import Output

_INDEX = {"prefill": "lengths", "decode": "cache_index"}


class RuntimeLanguageModel(Generator):
    """A language model of a bundle. `load` returns it; `generate` and `stream` are those of `Generator`.

    Several threads may generate at once: each text has a cache of its own.

    Args:
        steps: the model in its runtime.
        tokenizer: the tokenizer of the bundle, or None.
    """

    def generator(self):
        """What reads prompts for an engine: the model itself."""
        return self

    def paged_steps(self, num_blocks, block_size, **options):
        """The model with its cache in the blocks of a pool, for `generation.Engine`: see `PagedRuntimeSteps`."""
        from keras_transformer.export.runtime.paged_runtime import PagedRuntimeSteps

        return PagedRuntimeSteps(self.steps, num_blocks, block_size, **options)

    def warm_up(self, batch_size=1, length=1):
        """Reads a prompt and takes one step, so that the first text does not wait for what is prepared only once.

        Args:
            batch_size: int >= 1: prompts at once. Default 1.
            length: int >= 1: tokens of each prompt, or of each source. Default 1.

        Returns:
            The model.

        Raises:
            RunError: the runtime fails.
        """
        source = self.steps.make_source(np.zeros((batch_size, length), "int32"))
        prompt = length if source is None else 1
        cache = self.steps.init_cache(batch_size, prompt + 1, source)
        tokens, lengths = np.zeros((batch_size, prompt), "int32"), np.full(batch_size, prompt, "int32")
        _, cache = self.steps.prefill(tokens, lengths, cache)
        self.steps.decode_step(tokens[:, :1], cache, lengths)
        return self


def open_language_model(directory, manifest, backend, num_threads):
    """The language model of a bundle in one runtime.

    Raises:
        InvalidBundleError: the bundle lacks a file, or its tokenizer is not the one it was exported with.
    """
    tokenizer = read_tokenizer(directory, manifest)
    steps = STEPS[backend](directory, manifest, backend, num_threads)
    return RuntimeLanguageModel(steps, tokenizer)


class _Steps:
    """What the runtimes share: the loop's view of a model, see `generation.loop.decode`. A cache is a dict by name.

    A runtime implements `_call`, which runs one signature, and what makes, reads and chooses rows of its own arrays.
    """

    def __init__(self, directory, manifest, backend, num_threads):
        self.spec = GenerationSpec.from_dict(manifest["generation"])
        self._path = functools.partial(artifact_path, directory, manifest, backend)
        self._specs = functools.cache(functools.partial(signature_specs, manifest))
        self._backend = backend
        self._num_threads = num_threads
        # What comes out of a step again; the rest of the cache is the source, which stays.
        self._grows = [spec.name for spec in self._specs("decode")[1] if spec.name not in ("logits", "hidden_states")]

    def init_cache(self, batch_size, length, source=None):
        sizes = {"batch": batch_size, "cache_length": length}
        cache = {}
        for spec in self._specs("decode")[0]:
            if spec.name in self._grows:
                shape = [sizes[axis] if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True)]
                cache[spec.name] = self._array(np.zeros(shape, spec.dtype))
        if source is not None:
            with self._typed("encode"):
                memory = self._call("encode", dict(zip(self.spec.source_names, source, strict=True)), {})
                cache |= {name: self._array(np.asarray(array)) for name, array in memory.items()}
        return cache

    def make_source(self, token_ids):
        """A source to try the model with: these tokens, all real; zeros where it is no text; None where there is none."""
        if not self.spec.is_encoder_decoder:
            return None
        if self.spec.source_shape is not None:
            length = 1 if self.spec.takes_prompts else token_ids.shape[1]
            shape = [length if size is None else size for size in self.spec.source_shape]
            return (np.zeros((len(token_ids), *shape), "float32"),)
        return token_ids, np.ones(token_ids.shape, bool)

    def prefill(self, token_ids, lengths, cache):
        return self._step("prefill", token_ids, lengths, cache)

    def decode_step(self, token_ids, cache, cache_index):
        return self._step("decode", token_ids, cache_index, cache)

    def _step(self, signature, token_ids, index, cache):
        arrays = {"token_ids": np.ascontiguousarray(token_ids, "int32"), _INDEX[signature]: np.asarray(index, "int32")}
        with self._typed(signature):
            results = self._call(signature, arrays, cache)
            output = Output(np.asarray(results["logits"]), np.asarray(results["hidden_states"]))
            if output.logits.ndim != 3 or output.logits.shape[-1] != self.spec.vocabulary_size:
                raise ValueError(f"logits of shape {output.logits.shape} for {self.spec.vocabulary_size} tokens")
        new = {name: results[name] for name in self._grows if name in results}
        return output, {**cache, **new} if new else cache

    @contextlib.contextmanager
    def _typed(self, signature):
        """Errors of the runtime as ours."""
        try:
            yield
        except ExportError:
            raise
        except Exception as error:
            raise RunError(self._backend, signature, error) from error

    def take_rows(self, cache, rows):
        return self.make_cache({name: np.take(self._numpy(array), rows, axis=0) for name, array in cache.items()})

    def make_cache(self, arrays):
        """A cache that holds what these numpy arrays hold."""
        return {name: self._array(array) for name, array in arrays.items()}

    def as_numpy(self, array):
        """A tensor of a cache as a numpy array."""
        return self._numpy(array)

    def _array(self, array):
        return array

    def _numpy(self, array):
        return np.asarray(array)


class OnnxSteps(_Steps):
    """ONNX Runtime. What a step adds to a growing cache is written in place: no step copies the cache."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._sessions = {}
        self._lock = threading.Lock()
        _, manifest, backend, _ = arguments
        # A state of fixed size is read by more nodes than the one that writes it: that one needs room of its own.
        self._in_place = {spec.name for spec in self._specs("decode")[0] if "cache_length" in spec.axes}
        self._has_decode_token = "decode_token" in manifest["artifacts"][backend]["signatures"]

    def _session(self, signature):
        with self._lock:
            if signature not in self._sessions:
                # What runs once a text would keep its threads on the cores that the steps after it need.
                waits = signature.startswith("decode")
                self._sessions[signature] = onnx_session(str(self._path(signature)), self._num_threads, waits)
            return self._sessions[signature]

    def _call(self, signature, arrays, cache):
        if signature == "decode" and arrays["token_ids"].shape[1] == 1 and self._has_decode_token:
            signature = "decode_token"
        binding = self._bound(signature, arrays["token_ids"].shape, cache) if "token_ids" in arrays else None
        binding = binding or Binding(self._session(signature), self._names(signature), cache, self._in_place)
        return {
            name: value if name in self._grows else value.numpy().copy() for name, value in binding.run(arrays).items()
        }

    def _bound(self, signature, shape, cache):
        """The binding of a cache that steps leave where it is, which serves every step of the same shape; else None."""
        if not isinstance(cache, BoundCache):
            return None
        if cache.key != (signature, shape):
            cache.binding = Binding(self._session(signature), self._names(signature), cache, self._in_place)
            cache.key = signature, shape
        return cache.binding

    def _names(self, signature):
        return [spec.name for spec in self._specs(signature)[1]]

    def init_cache(self, batch_size, length, source=None):
        return self._bindable(super().init_cache(batch_size, length, source))

    def make_cache(self, arrays):
        return self._bindable(super().make_cache(arrays))

    def _bindable(self, cache):
        return BoundCache(cache) if self._in_place.issuperset(self._grows) else cache

    def _array(self, array):
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))

    def _numpy(self, array):
        return array.numpy()


class TFLiteSteps(_Steps):
    """LiteRT. One row runs in the signatures of fixed shapes as far as they reach, several in the dynamic ones."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        path = str(self._path("prefill"))
        self._engine = TFLiteEngine(path, "prefill", (), self._num_threads)
        # Lengths of the prompts, or of the sources, that have signatures of their own.
        kind = "encode" if self.spec.is_encoder_decoder else "prefill"
        self._names = set(self._engine.signatures())
        lengths = (int(name.split("_")[1]) for name in self._names if name.startswith(f"{kind}_"))
        self._buckets = sorted(lengths) if self.spec.source_shape is None else []
        fixed = next((name for name in self._names if name.startswith("decode_1")), None)
        self._fixed_length = fixed and self._length({spec.name: np.empty(spec.shape) for spec in self._specs(fixed)[0]})

    def init_cache(self, batch_size, length, source=None):
        fits = batch_size == 1 and self._fixed_length and length <= self._fixed_length
        return super().init_cache(batch_size, self._fixed_length if fits else length, source)

    def _call(self, signature, arrays, cache):
        if signature == "encode":
            signature, arrays = self._source(arrays)
        elif self._length(cache) == self._fixed_length and len(arrays["token_ids"]) == 1:
            signature, arrays = self._fixed(signature, arrays, cache)
        return self._engine.call(signature, {**arrays, **cache})

    def _source(self, arrays):
        """The signature that encodes a source, and what it is given."""
        if self.spec.source_shape is None:
            return self._widened("encode", arrays, self.spec.source_names)
        is_one = len(arrays[self.spec.source_names[0]]) == 1 and "encode_1" in self._names
        return "encode_1" if is_one else "encode", arrays

    def _fixed(self, signature, arrays, cache):
        """The signature of fixed shapes for one row, where there is one, and what it is given."""
        source_length = self._length(cache, "source_length")
        step = "decode_1" if source_length is None else f"decode_1_{source_length}"
        if arrays["token_ids"].shape[1] == 1 and step in self._names:
            if signature == "prefill":  # The first token is a token like any other.
                arrays = {"token_ids": arrays["token_ids"], "cache_index": arrays["lengths"] - 1}
            return step, arrays
        return self._widened("prefill", arrays, ("token_ids",)) if signature == "prefill" else (signature, arrays)

    def _widened(self, signature, arrays, names):
        """Pads the arrays of one row to the next length that has a signature of its own."""
        batch, length = arrays[names[0]].shape
        bucket = next((bucket for bucket in self._buckets if bucket >= length), None)
        if batch != 1 or bucket is None:
            return signature, arrays
        wide = {name: np.pad(arrays[name], ((0, 0), (0, bucket - length))) for name in names}
        return f"{signature}_{bucket}", {**arrays, **wide}

    def _length(self, cache, axis="cache_length"):
        """The size of an axis of the cache; None where it has no such axis, as a state of fixed size."""
        for spec in self._specs("decode")[0]:
            if axis in spec.axes:
                return cache[spec.name].shape[spec.axes.index(axis)]
        return None


class SavedModelSteps(_Steps):
    """TensorFlow itself; the cache stays in its tensors."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._loaded = load_saved_model(str(self._path("prefill")), self._num_threads)

    def _call(self, signature, arrays, cache):
        import tensorflow as tf

        tensors = {name: tf.convert_to_tensor(array) for name, array in {**arrays, **cache}.items()}
        return self._loaded.signatures[signature](**tensors)


STEPS = {"saved_model": SavedModelSteps, "tflite": TFLiteSteps, "onnx": OnnxSteps}


def is_language_bundle(manifest):
    """Whether a bundle generates.

    Raises:
        InvalidBundleError: it says so, but lacks what generation needs.
    """
    record = manifest.get("generation")
    if record is None:
        return False
    try:
        spec = GenerationSpec.from_dict(record)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidBundleError(f"the manifest's record of generation is not valid: {error}") from None
    if not {"prefill", "decode"} <= set(manifest["signatures"]):
        raise InvalidBundleError("the manifest's record of generation is incomplete: no prefill or decode")
    inputs, outputs = signature_specs(manifest, "decode")
    if not {"token_ids", "cache_index"} <= {spec.name for spec in inputs}:
        raise InvalidBundleError("signature 'decode' takes no token_ids or no cache_index")
    logits = next((spec for spec in outputs if spec.name == "logits"), None)
    if logits is None or logits.shape[-1:] != (spec.vocabulary_size,):
        raise InvalidBundleError(f"signature 'decode' gives no logits of {record['vocabulary_size']} tokens")
    return True
