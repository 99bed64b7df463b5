"""Generation from bundles: the texts of Keras in every runtime, at the expected cost, or a clear error."""

import collections
import itertools
import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from variants import exhaustive_but

from keras_transformer import generation, load_model
from keras_transformer.export import ExportError, InvalidBundleError, InvalidModelError, export, load
from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.onnx.generation_steps import OnnxSteps
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.export.saved_model.runtime import SavedModelSteps
from keras_transformer.export.tflite.generation_steps import TFLiteSteps
from keras_transformer.generation import (
    BeamSearch,
    EmptyPromptError,
    GenerationError,
    MissingTokenizerError,
    PromptTooLongError,
    Random,
    Speculative,
    TreeSearch,
)
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.tasks import LanguageModel
from keras_transformer.text import Bytes, Characters

BACKENDS = ("saved_model", "tflite", "onnx")
NAMES = ("gpt", "translator", "llama")
OF_FIXED_SIZE = exhaustive_but(("mistral", "rwkv", "transformer_xl", "recurrent_memory"), "rwkv")
MAX_LENGTH = 24
NEW = 12
RNG = np.random.default_rng(1)
PROMPTS = [RNG.integers(4, 260, length).tolist() for length in (3, 1, 9, 5, 7, 2, 4, 8)]


def variety(texts):
    """A scorer: the share of distinct tokens (or characters) of a text."""
    return [len(set(text)) / max(1, len(text)) for text in texts]


SEARCHES = {
    "greedy": "greedy",
    "repetition_penalty": "greedy",
    "beam": BeamSearch(num_beams=3),
    "contrastive": "contrastive",
    "tree_search": TreeSearch(variety, num_simulations=6, num_leaves=3),
}


class Models:
    """Keras models and runtimes of the bundles, each loaded once."""

    def __init__(self, exported):
        self.exported = exported
        self.loaded = {}
        self.texts = {}

    def keras(self, name):
        if name not in self.loaded:
            self.exported[name]
            self.loaded[name] = load_model(self.exported.directory / f"{name}.keras")
            self.loaded[name].jit_compile = False
        return self.loaded[name]

    def runtime(self, name, backend, signature=None):
        key = (name, backend, signature)
        if key not in self.loaded:
            self.loaded[key] = load(self.exported.bundle(name), backend, signature, num_threads=1)
        return self.loaded[key]

    def expected(self, name, search="greedy"):
        """Returns the texts of Keras for the prompts."""
        if (name, search) not in self.texts:
            self.texts[name, search] = self.keras(name).generate(PROMPTS, **options(search))
        return self.texts[name, search]


def options(search):
    penalty = 1.3 if search == "repetition_penalty" else 1.0
    return {"sampler": SEARCHES[search], "max_new_tokens": NEW, "repetition_penalty": penalty}


@pytest.fixture(scope="module")
def models(language):
    return Models(language)


@pytest.fixture
def calls(monkeypatch):
    """Records the signatures that run, with the shapes of their tokens."""
    seen = []
    for steps in (SavedModelSteps, TFLiteSteps, OnnxSteps):

        def spy(self, signature, arrays, cache, call=steps._call):
            seen.append((signature, *np.shape(arrays.get("token_ids", ()))))
            return call(self, signature, arrays, cache)

        monkeypatch.setattr(steps, "_call", spy)
    return seen


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", OF_FIXED_SIZE)
def test_a_cache_of_fixed_size_gives_what_keras_gives(models, name, backend, search):
    runtime = models.runtime(name, backend)
    assert runtime.generate(PROMPTS, **options(search)) == models.expected(name, search)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_a_cache_in_int8_gives_what_keras_gives(models, backend, search):
    runtime = models.runtime("rounded", backend)
    cache = runtime.steps.init_cache(1, 4)
    dtypes = {name: str(np.asarray(runtime.steps.as_numpy(array)).dtype) for name, array in cache.items()}
    assert {name.removeprefix("decoder_block_0_"): dtype for name, dtype in dtypes.items()} == {
        "key": "int8",
        "value": "int8",
        "key_scale": "float32",
        "value_scale": "float32",
    }
    assert runtime.generate(PROMPTS, **options(search)) == models.expected("rounded", search)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_a_cache_of_latents_gives_what_keras_gives(models, backend, search):
    runtime = models.runtime("latent", backend)
    cache = {name: np.asarray(runtime.steps.as_numpy(array)) for name, array in runtime.steps.init_cache(1, 4).items()}
    # A latent of 10 and a rotary key of 4 for all heads; TFLite rounds the number of slots up.
    (latent,) = cache.values()
    assert (*latent.shape[:2], latent.shape[3]) == (1, 1, 14)
    assert runtime.generate(PROMPTS, **options(search)) == models.expected("latent", search)


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("search", [name for name in SEARCHES if name != "contrastive"])
def test_a_prompt_that_is_read_half_way_gives_what_keras_gives(models, backend, search):
    runtime = models.runtime("yoco", backend)
    together = runtime.generate(PROMPTS, **options(search))
    assert together == models.expected("yoco", search)
    assert [runtime.generate(prompt, **options(search)) for prompt in PROMPTS] == together


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_prompt_that_is_read_half_way_has_no_states_to_contrast(models, backend):
    with pytest.raises(GenerationError, match="half-way"):
        models.runtime("yoco", backend).generate(PROMPTS, **options("contrastive"))


@pytest.mark.exhaustive
def test_the_file_reads_a_prompt_half_way(models):
    """In ONNX Runtime only the last token of a prompt is multiplied with the weights of the cross-decoder."""
    found, halves = _multiplied(models.runtime("yoco", "onnx").steps, length=13), collections.Counter()
    for weight in models.keras("yoco").weights:
        if weight.name in ("kernel", "embeddings"):
            halves["cross" if weight.path.startswith(("cross", "token")) else "self"] += math.prod(weight.shape)
    assert found == {13: halves["self"], 1: halves["cross"]}


def _multiplied(steps, length):
    """Returns the number of weights that this number of rows is multiplied with, from the runtime's profile."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(steps._path("prefill"))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(steps._path("prefill")), options)
    sizes = {"batch": 1, "length": length, "cache_length": 24}
    inputs = {"token_ids": np.ones((1, length), "int32"), "lengths": np.array([length], "int32")}
    for spec in steps._specs("prefill")[0]:
        shape = [sizes[axis] if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True)]
        inputs.setdefault(spec.name, np.zeros(shape, spec.dtype))
    session.run(None, inputs)
    graph = onnx.load(str(steps._path("prefill"))).graph
    weights = {each.name: math.prod(each.dims) for each in graph.initializer if len(each.dims) > 1}
    nodes, found = {node.name: node for node in graph.node}, collections.Counter()
    for event in json.loads(pathlib.Path(session.end_profiling()).read_text()):
        node = nodes.get(event["name"].removesuffix("_kernel_time"))
        if node is None or not event["name"].endswith("_kernel_time") or node.op_type not in ("MatMul", "Gemm"):
            continue
        if weights.get(node.input[1], 0) > 8 * 8:  # Without the quarter-turn matrices of rotary positions.
            ((_, shape),) = event["args"]["output_type_shape"][0].items()
            found[math.prod(shape[:-1])] += weights[node.input[1]]
    return dict(found)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", exhaustive_but(("mistral", "rwkv"), "rwkv"))
def test_a_cache_of_fixed_size_does_not_go_back(models, name, backend):
    target, draft = models.runtime(name, backend), models.runtime("gpt", backend)
    for model, guesser in ((target, draft), (draft, target)):
        with pytest.raises(GenerationError, match="fixed size"):
            model.generate(PROMPTS[:1], sampler=Speculative(guesser))


@pytest.mark.parametrize("name", OF_FIXED_SIZE)
def test_the_graph_that_generates_keeps_a_cache_of_fixed_size(models, name):
    lengths = [len(prompt) for prompt in PROMPTS]
    inputs = {
        "token_ids": np.array([prompt + [0] * (max(lengths) - len(prompt)) for prompt in PROMPTS], "int32"),
        "lengths": np.array(lengths, "int32"),
        "max_new_tokens": np.array(NEW, "int32"),
    }
    for backend in BACKENDS:
        texts = models.runtime(name, backend, "generate")(inputs)["new_token_ids"]
        assert texts.tolist() == models.expected(name)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_ragged_batch_is_each_prompt_alone_and_keras(models, name, backend, search):
    runtime = models.runtime(name, backend)
    together = runtime.generate(PROMPTS, **options(search))
    assert together == models.expected(name, search)
    assert [runtime.generate(prompt, **options(search)) for prompt in PROMPTS] == together
    assert runtime.generate(PROMPTS, batch_size=3, **options(search)) == together


@pytest.mark.exhaustive
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_sounds_of_unequal_length_are_answered_as_keras_answers_each(models, backend, search):
    rng = np.random.default_rng(2)
    sounds = [rng.normal(0, 0.3, length).astype("float32") for length in (1920, 300, 2500, 1100)]
    given = options(search)
    expected = [models.keras("listener").generate(sound, **given) for sound in sounds]
    assert len(set(map(tuple, expected))) > 1, "all sounds are answered alike"
    runtime = models.runtime("listener", backend)
    assert runtime.generate(sounds, **given) == expected
    assert runtime.generate(sounds[1], **given) == expected[1]


@pytest.mark.parametrize("name", NAMES)
def test_searches_differ_and_an_end_stops_rows(models, name):
    # Otherwise the other tests would compare little.
    texts = [models.expected(name, search) for search in SEARCHES]
    assert all(texts[0] != others for others in texts[1:])
    for search, found in zip(SEARCHES, texts, strict=True):
        # Texts of the tree search need not end.
        assert search == "tree_search" or len({len(row) for row in found}) > 1
        assert not any(set(row) & set(as_end_ids(models.keras(name).end_id)) for row in found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_speculative_decoding_gives_the_targets_own_greedy_text(models, backend):
    target, draft = models.runtime("gpt", backend), models.runtime("llama", backend)
    poor, perfect = Speculative(draft, num_draft_tokens=3), Speculative(target, num_draft_tokens=3)
    for sampler in (poor, perfect):
        assert target.generate(PROMPTS, sampler=sampler, max_new_tokens=NEW) == models.expected("gpt")
        assert target.generate(PROMPTS[4], sampler=sampler, max_new_tokens=NEW) == models.expected("gpt")[4]
    assert perfect.accepted_per_step > poor.accepted_per_step


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_random_texts_come_again_with_the_seed_and_are_those_of_keras(models, name, backend):
    runtime, sampler = models.runtime(name, backend), Random(temperature=1.5, top_k=20, top_p=0.95)
    first, again, other = (
        runtime.generate(PROMPTS, sampler=sampler, max_new_tokens=NEW, seed=seed) for seed in (5, 5, 6)
    )
    assert first == again != other
    assert first == models.keras(name).generate(PROMPTS, sampler=sampler, max_new_tokens=NEW, seed=5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_best_of_several_beams_with_their_scores(models, backend):
    asked = {"sampler": BeamSearch(3, num_results=2), "max_new_tokens": NEW, "return_scores": True}
    texts, scores = models.runtime("gpt", backend).generate(PROMPTS, **asked)
    expected_texts, expected_scores = models.keras("gpt").generate(PROMPTS, **asked)
    assert texts == expected_texts
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.parametrize("chunks", [(11,), (4, 7), (1,) * 11, (2, 1, 5, 3)], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_whole_is_chunked_is_stepwise(models, name, backend, chunks):
    rng = np.random.default_rng(3)
    token_ids = rng.integers(0, 260, (2, sum(chunks))).astype("int32")
    source = rng.integers(0, 260, (2, 6)).astype("int32"), np.arange(6) < [[6], [4]]
    steps, model = models.runtime(name, backend).steps, models.keras(name)
    inputs = {"token_ids": token_ids, "padding_mask": np.ones(token_ids.shape, bool)}
    if name == "translator":
        inputs = {f"target_{key}": array for key, array in inputs.items()}
        inputs |= dict(zip(("source_token_ids", "source_padding_mask"), source, strict=True))
    whole = np.asarray(model(inputs))
    cache = steps.init_cache(2, sum(chunks), source if name == "translator" else None)
    pieces, start = [], 0
    for size in chunks:
        index = np.full(2, start, "int32")
        output, cache = steps.decode_step(token_ids[:, start : start + size], cache, index)
        pieces.append(output.logits)
        start += size
    assert np.abs(np.concatenate(pieces, axis=1) - whole).max() <= 1e-5 * np.abs(whole).max()


@pytest.mark.parametrize("backend", ["saved_model", "onnx"])
@pytest.mark.parametrize("name", ["gpt", "translator"])
def test_the_graph_with_the_loop_inside(models, name, backend):
    lengths = np.array([len(prompt) for prompt in PROMPTS], "int32")
    token_ids = np.zeros((8, 9), "int32")
    for row, prompt in zip(token_ids, PROMPTS, strict=True):
        row[: len(prompt)] = prompt
    arrays = {"token_ids": token_ids, "lengths": lengths}
    if name == "translator":
        arrays = {"source_token_ids": token_ids, "source_padding_mask": np.arange(9) < lengths[:, None]}
    generate = models.runtime(name, backend, "generate")
    found = generate(arrays, max_new_tokens=np.array(NEW, "int32"))
    ends, expected = as_end_ids(models.keras(name).end_id), models.expected(name)
    rows = zip(found["new_token_ids"], found["new_lengths"], expected, strict=True)
    for tokens, length, wanted in rows:
        texts = [wanted] if len(wanted) == NEW else [[*wanted, end_id] for end_id in ends]
        assert tokens[:length].tolist() in texts
        assert not tokens[length:].any()


@pytest.mark.parametrize("name", ["gpt", "translator"])
def test_the_graph_that_takes_and_gives_text(models, name):
    texts = ["Grüße", "Zeus", "The king", "xyz", "42"]
    generate = models.runtime(name, "saved_model", "generate_text")
    found = generate(text=texts, max_new_tokens=NEW)["new_text"].tolist()
    assert found == models.keras(name).generate(texts, max_new_tokens=NEW)
    # End tokens are not in the text, although they are bytes here.
    assert len({len(models.keras(name).generate(Bytes().encode(text), max_new_tokens=NEW)) for text in texts}) > 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_source_is_read_once(models, calls, backend):
    models.runtime("translator", backend).generate(PROMPTS[0], max_new_tokens=5, sampler="beam")
    assert [call[0] for call in calls] == ["encode", "prefill", *["decode"] * 4]


@pytest.fixture
def signatures(models, monkeypatch):
    """A function that records the signatures of a bundle in LiteRT, with the shapes of their tokens."""

    def record(name):
        runtime, seen = models.runtime(name, "tflite").steps._runtime, []

        def spied(call):
            def spy(signature, arrays, *others):
                shape = next((arrays[each].shape for each in ("token_ids", "source_token_ids") if each in arrays), ())
                seen.append((signature, *shape))
                return call(signature, arrays, *others)

            return spy

        # A step writes into the cache; a call copies it.
        monkeypatch.setattr(runtime, "step", spied(runtime.step))
        monkeypatch.setattr(runtime, "call", spied(runtime.call))
        return seen

    return record


def test_tflite_takes_the_signature_of_the_shortest_bucket(models, signatures):
    runtime, seen = models.runtime("gpt", "tflite"), signatures("gpt")
    prompt = list(range(46, 66))
    for length, *expected in (
        (1, ("decode_1", 1, 1)),  # A prompt of one token uses the decoding step.
        (4, ("prefill_4", 1, 4)),
        (5, ("prefill_8", 1, 8)),
        (10, ("prefill_8", 1, 8), ("decode_1", 1, 1), ("decode_1", 1, 1)),
        (13, ("prefill_8", 1, 8), ("extend_4", 1, 4), ("decode_1", 1, 1)),
    ):
        seen.clear()
        found = runtime.generate(prompt[:length], max_new_tokens=3)
        assert seen == [*expected, ("decode_1", 1, 1), ("decode_1", 1, 1)]
        assert found == models.keras("gpt").generate(prompt[:length], max_new_tokens=3)
    seen.clear()
    runtime.generate([prompt[:3], prompt[:2]], max_new_tokens=3)
    assert seen == [("prefill", 2, 3), ("decode", 2, 1), ("decode", 2, 1)]


@pytest.mark.parametrize("name", ["gpt", pytest.param("mistral", marks=pytest.mark.exhaustive), "llama"])
def test_chunks_give_the_logits_of_keras(models, name):
    """Whole, in chunks of any sizes, and token by token: the caches of fixed shapes are those of the others."""
    steps, model = models.runtime(name, "tflite").steps, models.keras(name)
    tokens = RNG.integers(4, 60, (1, 15)).astype("int32")
    logits, *_ = model.prefill(tokens, np.array([15], "int32"), model.init_cache(1, 16))
    *_, cache = model.prefill(tokens[:, :2], np.array([2], "int32"), model.init_cache(1, 16))
    rest, *_ = model.decode_step(tokens[:, 2:], cache, np.array([2], "int32"))
    every = np.asarray(rest)
    np.testing.assert_allclose(every[:, -1:], np.asarray(logits), rtol=1e-4, atol=1e-4)
    for cuts in ((2, 15), (2, 3, 6, 15), (2, 7, 8, 12, 15), range(2, 16), (2, 11, 13, 15)):
        cache, found = steps.init_cache(1, 16), []
        _, cache = steps.prefill(tokens[:, :2], np.array([2]), cache)
        for start, end in itertools.pairwise(cuts):
            output, cache = steps.decode_step(tokens[:, start:end], cache, np.array([start]))
            found.append(output.logits)
        np.testing.assert_allclose(np.concatenate(found, axis=1), every, rtol=1e-4, atol=1e-4)
    for end in (9, 12, 15):
        output, cache = steps.prefill(tokens[:, :end], np.array([end]), steps.init_cache(1, 16))
        np.testing.assert_allclose(output.logits[:, -1], every[:, end - 3], rtol=1e-4, atol=1e-4)
        assert output.hidden_states.shape[:2] == (1, end)
    for start in (2, 6):
        _, cache = steps.prefill(tokens[:, :start], np.array([start]), steps.init_cache(1, 16))
        output, cache = steps.extend(tokens[:, start:], cache, np.array([start]))
        np.testing.assert_allclose(output.logits, every[:, -1:], rtol=1e-4, atol=1e-4)


def test_packed_weights_are_kept_where_the_user_says(models, tmp_path):
    bundle, folder = models.exported.bundle("gpt"), tmp_path / "weights"
    expected = models.keras("gpt").generate(PROMPTS[0], max_new_tokens=NEW)
    shutil.copytree(bundle, tmp_path / "moved")
    for place in (bundle, tmp_path / "moved"):
        model = load(place, "tflite", num_threads=1, weight_cache=folder)
        assert model.generate(PROMPTS[0], max_new_tokens=NEW) == expected
        assert sorted(each.suffix for each in folder.iterdir()) == [".tflite", ".xnnpack"]
    assert not list(tmp_path.glob("*.weight_cache"))  # The file is small.
    with pytest.raises(ExportError, match="weight_cache is for runtimes that pack weights into files"):
        load(bundle, "onnx", weight_cache=folder)
    with pytest.raises(ExportError, match="weight_cache must be the path of a folder"):
        load(bundle, "tflite", weight_cache=True)


def test_tflite_takes_fixed_shapes_for_short_sources(models, signatures):
    runtime, seen = models.runtime("translator", "tflite"), signatures("translator")
    source = PROMPTS[0][:1] * 7
    for prompts, encode, step in (
        (source[:4], "encode_32", "decode_1_32"),
        (source * 5, "encode_128", "decode_1_128"),
        ([source, source[:2]], "encode", "decode"),
    ):
        seen.clear()
        found = runtime.generate(prompts, max_new_tokens=3)
        first = "prefill" if step == "decode" else step
        names = [each[0] for each in seen]
        assert names[:2] == [encode, first]
        assert set(names[2:]) <= {step}
        assert found == models.keras("translator").generate(prompts, max_new_tokens=3)


def test_tflite_goes_on_where_the_fixed_cache_ends(models):
    # The static signatures hold 16 tokens; the model has no end token.
    prompt = list(range(46, 59))
    runtime = models.runtime("llama", "tflite")
    expected = models.keras("llama").generate(prompt, max_new_tokens=20)
    assert len(prompt) + len(expected) > 16
    assert runtime.generate(prompt, max_new_tokens=20) == expected


@pytest.mark.parametrize("name", NAMES)
def test_onnx_weights_lie_once_on_disk(models, name):
    bundle = models.exported.bundle(name)
    paths = list(bundle.glob("model.*.onnx"))
    assert len(paths) >= 2
    graphs = [onnx.load(path, load_external_data=False) for path in paths]
    places = {
        (entry["location"], entry["offset"])
        for graph in graphs
        for tensor in graph.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in [{each.key: each.value for each in tensor.external_data}]
    }
    large = [np.asarray(weight) for weight in models.keras(name).weights if np.asarray(weight).nbytes >= 1024]
    # The table of sinusoidal positions may be stored too; no weight is stored twice.
    assert len(large) <= len(places) <= len(large) + 1
    content = [path.read_bytes() for path in (*paths, bundle / "model.weights")]
    for weight in large:
        stored = [np.ascontiguousarray(each).tobytes() for each in (weight, weight.T)]
        assert sum(data.count(each) for data in content for each in set(stored)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_onnx_writes_the_cache_in_place(models, name):
    steps = models.runtime(name, "onnx").steps
    source = (np.array([[5, 6, 7]], "int32"), np.ones((1, 3), bool)) if name == "translator" else None
    empty = steps.init_cache(1, 10, source)
    _, cache = steps.prefill(np.array([[9, 8, 7]], "int32"), np.array([3], "int32"), empty)
    before = {key: value.numpy().copy() for key, value in cache.items()}
    pointers = {key: value.data_ptr() for key, value in cache.items()}
    _, after = steps.decode_step(np.array([[6]], "int32"), cache, np.array([3], "int32"))
    axes = {spec.name: spec.axes for spec in steps._specs("decode")[0] if "cache_length" in spec.axes}
    assert len(axes) == 2
    for key, value in after.items():
        assert value is cache[key]
        assert value.data_ptr() == pointers[key]
        changed = value.numpy() != before[key]
        if key in axes:
            assert set(np.nonzero(changed)[axes[key].index("cache_length")]) == {3}
        else:
            assert not changed.any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name, seed", [("gpt", 47), ("translator", 138)])
def test_text_in_and_text_out(models, name, seed, backend):
    runtime, model = models.runtime(name, backend), models.keras(name)
    text, asked = "Grüße", {"max_new_tokens": 14, "sampler": Random(top_k=8), "seed": seed}
    found = runtime.generate(text, **asked)
    assert any("\u0100" < character < "\ufffd" for character in found), "no character of several tokens to be joined"
    assert found == model.generate(text, **asked)
    assert runtime.generate(text.encode(), **asked) == found
    pieces = list(runtime.stream(text, **asked))
    assert "".join(pieces) == found
    assert len(pieces) > 3
    tokens = runtime.generate(Bytes().encode(text, end=name == "translator"), **asked)
    assert Bytes().decode(tokens) == found
    stop = found[3:5]
    assert runtime.generate(text, stop=stop, **asked) == found[: found.index(stop)]
    assert "".join(runtime.stream(text, stop=[stop, "no such text"], **asked)) == found[: found.index(stop)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_served_is_refused_before_anything_runs(models, calls, backend):
    gpt, translator, llama = (models.runtime(name, backend) for name in NAMES)
    calls.clear()
    for prompt, error, message, asked in (
        ("", EmptyPromptError, "Prompt 0 is empty", {}),
        (["a", ""], EmptyPromptError, "Prompt 1 is empty", {}),
        ([], EmptyPromptError, "No prompts", {}),
        (b"a\xff", GenerationError, "Prompt 0 is not UTF-8 text: invalid start byte at 1", {}),
        ("a\udcff", GenerationError, "Prompt 0 is not UTF-8 text: surrogates not allowed at 1", {}),
        ("a" * 25, PromptTooLongError, "25 tokens; with max_new_tokens=1 that exceeds the 24", {}),
        ("a" * 20, PromptTooLongError, "20 tokens; with max_new_tokens=5 that exceeds the 24", {"max_new_tokens": 5}),
        ("a", GenerationError, "max_new_tokens must be a positive integer. Received: 0", {"max_new_tokens": 0}),
        ("a", GenerationError, "max_new_tokens must be a positive integer. Received: -3", {"max_new_tokens": -3}),
        ("a", GenerationError, "Unknown sampler 'best'", {"sampler": "best"}),
        ("a", GenerationError, "stop must be text or token ids, not empty", {"stop": [""]}),
        ([260], GenerationError, "token ids outside 0 to 259", {}),
        ("a", GenerationError, "both be encoder-decoders", {"sampler": Speculative(translator)}),
        ("a", GenerationError, "Greedy has no scores", {"return_scores": True}),
    ):
        with pytest.raises(error, match=message):
            gpt.generate(prompt, **asked)
    with pytest.raises(MissingTokenizerError, match="no tokenizer"):
        llama.generate("a")
    with pytest.raises(GenerationError, match="only in the end"):
        gpt.stream("a", sampler="beam")
    assert calls == []


def test_a_tokenizer_that_was_altered_or_replaced_is_refused(models, tmp_path):
    bundle = tmp_path / "bundle"
    shutil.copytree(models.exported.bundle("gpt"), bundle)
    shutil.rmtree(bundle / "tokenizer")
    Characters("abcdefghijklmnopqrstuvwxyz").save(bundle / "tokenizer")
    for backend in BACKENDS:
        with pytest.raises(InvalidBundleError, match="tokenizer"):
            load(bundle, backend)
    # Also if the list of files is changed consistently.
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"] = {key: value.to_dict() for key, value in file_records(bundle).items() if key != "manifest.json"}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    for backend in BACKENDS:
        with pytest.raises(
            InvalidBundleError, match="'tokenizer' is not the tokenizer that the bundle was exported with"
        ):
            load(bundle, backend)


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_needs_neither_tensorflow_nor_keras(models, backend):
    bundle = str(models.exported.bundle("gpt"))
    script = (
        "import sys\n"
        "from keras_transformer.export import load, verify_bundle\n"
        f"model = load({bundle!r}, {backend!r})\n"
        "texts = [model.generate('abc', max_new_tokens=4, sampler=name) for name in ('greedy', 'random', 'beam')]\n"
        "assert list(map(type, texts)) == [str, str, str]\n"
        "assert isinstance(''.join(model.stream('abc', max_new_tokens=4)), str)\n"
        f"verify_bundle({bundle!r}, [{backend!r}])\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'tensorflow', 'keras', 'tf2onnx', 'torch'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_a_model_whose_steps_differ_from_its_whole_is_not_exported(models, monkeypatch, tmp_path):
    right = LanguageModel.decode_step

    def wrong(self, token_ids, cache, cache_index):
        logits, hidden_states, cache = right(self, token_ids, cache, cache_index)
        return logits + 0.1, hidden_states, cache

    monkeypatch.setattr(LanguageModel, "decode_step", wrong)
    with pytest.raises(InvalidModelError, match="read token by token differs from itself read whole by"):
        export(models.keras("gpt"), tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_one_forward_pass_in_place_of_generation(models):
    model = models.runtime("serve", "saved_model")
    assert type(model) is RuntimeModel
    token_ids = np.array([PROMPTS[2]], "int32")
    inputs = {"token_ids": token_ids, "padding_mask": np.ones(token_ids.shape, bool)}
    expected = np.asarray(models.keras("serve")(inputs))
    (logits,) = model(inputs).values()
    np.testing.assert_allclose(logits, expected, atol=1e-5 * np.abs(expected).max())
    (from_text,) = model("abc").values()
    (from_ids,) = model(token_ids=[Bytes().encode("abc")], padding_mask=[[True] * 3]).values()
    np.testing.assert_array_equal(from_text, from_ids)
    (in_graph,) = models.runtime("serve", "saved_model", "serve_text")(text=["abc"]).values()
    np.testing.assert_allclose(in_graph, from_ids, atol=1e-5 * np.abs(expected).max())


def test_every_search_was_tried():
    assert set(generation.SAMPLERS) <= {*SEARCHES, "random"}
