"""Decoders for LiteRT-LM, run by a NumPy loop in LiteRT and, if installed, by the engine."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

from keras_transformer.text import Bytes

pytestmark = pytest.mark.slow

TOKENIZER = Bytes()
PROMPTS = ["The engine", "ab", "c"]
NEW, SLOTS, BUCKETS = 8, 24, (4, 8)
TURN = 3
END_ID = 161


def gpt(**options):
    from keras_transformer.models import Decoder, Size
    from keras_transformer.tasks import LanguageModel

    backbone = Decoder(Size(2, 16, 2, 24), TOKENIZER.vocabulary_size, max_sequence_length=SLOTS + BUCKETS[-1] - 1)
    return LanguageModel(backbone, **{"tokenizer": TOKENIZER, "start_id": 1, "end_id": END_ID, **options})


def randomize(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        is_matrix = len(weight.shape) > 1
        weight.assign(rng.normal(0, 0.8, weight.shape) if is_matrix else weight + rng.normal(0, 0.1, weight.shape))
    return model


def main(out):
    """Writes the graphs and, if its library is installed, the file in a separate process: the converter leaks memory."""
    from keras_transformer.export.engines.litertlm.graph import litertlm_spec
    from keras_transformer.export.engines.litertlm.model_file import write_litertlm
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.tflite import convert as tflite

    model = randomize(gpt())
    if importlib.util.find_spec("litert_lm_builder"):
        write_litertlm(model, out / "gpt.litertlm", prefill_buckets=BUCKETS)
    else:
        spec = litertlm_spec(model, SLOTS, BUCKETS, 1e-5)
        tflite.write(TracedModule(spec), spec, out)
    tokens = [model.generate([1, *TOKENIZER.encode(prompt)], max_new_tokens=NEW) for prompt in PROMPTS]
    texts = model.generate(PROMPTS, max_new_tokens=NEW)
    read, chat = [1], []
    for prompt in PROMPTS:
        read += TOKENIZER.encode(prompt)
        said = model.generate(read, max_new_tokens=TURN)
        read, chat = read + said, [*chat, TOKENIZER.decode(said)]
    (out / "results.json").write_text(json.dumps({"tokens": tokens, "texts": texts, "chat": chat}))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("litertlm")
    words = [sys.executable, __file__, str(out)]
    run = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"KERAS_BACKEND": "tensorflow"})
    assert (out / "results.json").exists(), run.stderr[-3000:]
    if (out / "gpt.litertlm").exists():
        import litert_lm_builder

        litert_lm_builder.unpack_litertlm_file(str(out / "gpt.litertlm"), str(out / "sections"))
        (found,) = (out / "sections").glob("**/*.tflite")
        found.rename(out / "model.tflite")
    return out


@pytest.fixture(scope="module")
def interpreter(written):
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(model_path=str(written / "model.tflite"))


def results(written):
    return json.loads((written / "results.json").read_text())


def decode(interpreter, prompt, new):
    """Emulates the engine: the prompt without its last token in chunks, with padding at position 0, then single tokens."""
    step = interpreter.get_signature_runner("decode")
    cache = {
        name: np.zeros(details["shape"], "float32")
        for name, details in step.get_input_details().items()
        if name.startswith("kv_cache")
    }
    read = prompt[:-1]
    for place in range(0, len(read), BUCKETS[0]):
        chunk = read[place : place + BUCKETS[0]]
        padding = [0] * (BUCKETS[0] - len(chunk))
        arrays = {"tokens": [chunk + padding], "input_pos": [*range(place, place + len(chunk)), *padding]}
        arrays = {name: np.array(values, "int32") for name, values in arrays.items()}
        cache = interpreter.get_signature_runner(f"prefill_{BUCKETS[0]}")(**arrays, **cache)
    tokens = [prompt[-1]]
    for place in range(len(read), len(read) + new):
        arrays = {"tokens": np.array([tokens[-1:]], "int32"), "input_pos": np.array([place], "int32")}
        cache = step(**arrays, **cache)
        tokens.append(int(cache.pop("logits")[0, 0].argmax()))
    return tokens[1:]


def test_chunks_and_tokens_give_the_models_tokens(written, interpreter):
    for prompt, expected in zip(PROMPTS, results(written)["tokens"], strict=True):
        got = decode(interpreter, [1, *TOKENIZER.encode(prompt)], len(expected))
        assert got == expected


def test_a_text_ends_where_the_model_ends_it(written):
    lengths = [len(tokens) for tokens in results(written)["tokens"]]
    assert min(lengths) < NEW <= max(lengths), "some text must end early and another not: choose another end_id"


def test_the_last_slot_of_the_cache_is_reached(interpreter):
    """A prompt that almost fills the cache: the padding of its last chunk exceeds the end."""
    whole = randomize(gpt())
    prompt = [1, *TOKENIZER.encode("a prompt of all slots."[: SLOTS - 2])]
    assert len(prompt) == SLOTS - 1
    assert decode(interpreter, prompt, 2) == whole.generate(prompt, max_new_tokens=2)


def test_the_signatures_are_those_that_the_engine_looks_for(interpreter):
    signatures = interpreter.get_signature_list()
    assert set(signatures) == {"prefill_4", "prefill_8", "decode"}
    cache = {f"kv_cache_{part}_{layer}" for part in "kv" for layer in range(2)}
    for name, signature in signatures.items():
        assert set(signature["inputs"]) == {"tokens", "input_pos", *cache}
        assert set(signature["outputs"]) == (cache | {"logits"} if name == "decode" else cache)
    details = interpreter.get_signature_runner("decode").get_input_details()
    assert details["kv_cache_k_1"]["shape"].tolist() == [1, 2, SLOTS, 8]


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    from keras_transformer.export.engines.litertlm.model_file import write_litertlm
    from keras_transformer.export.errors import InvalidBundleError, InvalidModelError, MissingLibraryError
    from keras_transformer.text import Characters

    model, path = gpt(), tmp_path / "no.litertlm"
    with pytest.raises(InvalidBundleError, match=".litertlm"):
        write_litertlm(model, tmp_path / "no.tflite")
    monkeypatch.setitem(sys.modules, "litert_lm_builder", None)
    with pytest.raises(MissingLibraryError, match="pip install litert-lm-builder"):
        write_litertlm(model, path)
    monkeypatch.setattr("keras_transformer.export.engines.litertlm.model_file._builder", lambda: None)
    with pytest.raises(InvalidModelError, match="needs a tokenizer"):
        write_litertlm(gpt(tokenizer=None), path)
    with pytest.raises(InvalidModelError, match="characters"):
        write_litertlm(gpt(tokenizer=Characters.train(["abc"])), path)
    with pytest.raises(InvalidModelError, match="limited to 31 tokens"):
        write_litertlm(model, path, max_length=32)
    with pytest.raises(InvalidModelError, match="prefill_buckets"):
        write_litertlm(model, path, prefill_buckets=[1])
    assert list(tmp_path.iterdir()) == []


def test_the_file_carries_what_the_engine_must_know(written):
    pytest.importorskip("litert_lm_builder")
    import tokenizers
    from google.protobuf import text_format
    from litert_lm_builder.runtime.proto import llm_metadata_pb2

    text = (written / "sections" / "LlmMetadataProto.pbtext").read_text()
    metadata = text_format.Parse(text, llm_metadata_pb2.LlmMetadata())
    assert metadata.max_num_tokens == SLOTS
    assert list(metadata.start_token.token_ids.ids) == [1]
    assert [list(token.token_ids.ids) for token in metadata.stop_tokens] == [[END_ID]]
    (packed,) = (written / "sections").glob("*HF_Tokenizer_Zlib*")
    size, content = int.from_bytes(packed.read_bytes()[:8], "little"), zlib.decompress(packed.read_bytes()[8:])
    assert len(content) == size
    assert tokenizers.Tokenizer.from_str(content.decode()).encode("Aé").ids == TOKENIZER.encode("Aé")


def test_a_chat_is_its_texts_one_after_the_other():
    """The engine passes a text as a list of parts; the template must join them."""
    jinja2 = pytest.importorskip("jinja2")
    from keras_transformer.export.engines.litertlm.model_file import _TEMPLATE

    messages = [
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two "}]},
        {"role": "assistant", "content": "three"},
    ]
    assert jinja2.Template(_TEMPLATE).render(messages=messages) == "one two three"


def test_the_engine_says_what_the_model_says(written):
    pytest.importorskip("litert_lm")
    from keras_transformer.export.engines.litertlm.check import ask_engine

    for prompt, expected in zip(PROMPTS, results(written)["texts"], strict=True):
        text, ids, _ = ask_engine(written / "gpt.litertlm", prompt, NEW)
        assert ids == TOKENIZER.encode(prompt)
        assert text == expected


def test_each_turn_of_a_chat_follows_those_before_it(written):
    engine = pytest.importorskip("litert_lm")
    sampler = engine.SamplerConfig(top_k=1, top_p=1.0, temperature=1.0)
    with (
        engine.Engine(str(written / "gpt.litertlm"), backend=engine.Backend.CPU(), cache_dir=":nocache") as opened,
        opened.create_conversation(sampler_config=sampler, max_output_tokens=TURN) as chat,
    ):
        assert [str(chat.send_message(prompt)) for prompt in PROMPTS] == results(written)["chat"]


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
