"""Decoders for onnxruntime-genai, run by a NumPy loop and, if installed, by the engine."""

import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest

from keras_transformer.text import BytePair, Bytes

pytestmark = pytest.mark.slow

TOKENIZER = Bytes()
PROMPTS = [[72, 105, 36, 201, 99], [84, 72], [119]]
NEW = 9
END_IDS = {"gpt": 74, "llama": None}
TEXTS = ["Hello world", "  two  spaces\n\n\ttab ", "naïve 😀 漢字", "I'll don't 12345 3.14!!", "a\r\nb"]


def gpt():
    from keras_transformer.models import Decoder, Size
    from keras_transformer.tasks import LanguageModel

    backbone = Decoder(Size(2, 16, 2, 24), TOKENIZER.vocabulary_size, max_sequence_length=24)
    return LanguageModel(backbone, tokenizer=TOKENIZER, end_id=END_IDS["gpt"])


def llama():
    from keras_transformer.attention import MultiHeadAttention
    from keras_transformer.models import Decoder, Size
    from keras_transformer.tasks import LanguageModel

    attention = MultiHeadAttention(num_heads=4, key_dim=4, num_key_value_heads=2, position="rotary")
    options = {"position": None, "norm": "rms_norm", "attention": attention, "feedforward": "gated"}
    return LanguageModel(Decoder(Size(1, 16, 4, 24), TOKENIZER.vocabulary_size, **options), tie_embeddings=False)


def randomize(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        is_matrix = len(weight.shape) > 1
        weight.assign(rng.normal(0, 0.8, weight.shape) if is_matrix else weight + rng.normal(0, 0.1, weight.shape))
    return model


def main(out):
    """Writes the models in a separate process, because the converter leaks memory."""
    import keras

    from keras_transformer.export.engines.genai.model_directory import write_genai

    found = {}
    for make in (gpt, llama):
        model, name = randomize(make()), make.__name__
        report = write_genai(model, out / name, max_length=20)
        found[name] = {"tokens": model.generate(PROMPTS, max_new_tokens=NEW), "ratio": report["onnx"].ratio}
    keras.config.set_dtype_policy("mixed_bfloat16")
    write_genai(randomize(gpt()), out / "int8", quantize="weight_int8")
    (out / "results.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("genai")
    words = [sys.executable, __file__, str(out)]
    run = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"KERAS_BACKEND": "tensorflow"})
    assert (out / "results.json").exists(), run.stderr[-3000:]
    return out


def results(written, name):
    return json.loads((written / "results.json").read_text())[name]


def config(written, name):
    return json.loads((written / name / "genai_config.json").read_text())


def session(written, name):
    import onnxruntime

    return onnxruntime.InferenceSession(written / name / "model.onnx", providers=["CPUExecutionProvider"])


def decode(session, prompts, new):
    """Emulates the engine: padding on the right, past and present, growing masks and positions."""
    shape = next(each.shape for each in session.get_inputs() if each.name == "past_key_values.0.key")
    inputs = [each.name for each in session.get_inputs()]
    outputs = [each.name for each in session.get_outputs()]
    lengths = np.array([len(prompt) for prompt in prompts])
    token_ids = np.full((len(prompts), lengths.max()), TOKENIZER.pad_id, "int64")
    for row, prompt in zip(token_ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype("int64")
    positions = np.arange(lengths.max())[None] * mask
    past = {
        name: np.zeros((len(prompts), shape[1], 0, shape[3]), "float32")
        for name in inputs
        if name.startswith("past_key_values")
    }
    texts = []
    for _ in range(new):
        feed = {"input_ids": token_ids, "attention_mask": mask, "position_ids": positions, **past}
        found = dict(zip(outputs, session.run(None, feed), strict=True))
        past = {name: found[name.replace("past_key_values", "present")] for name in past}
        token_ids = found["logits"][:, -1].argmax(-1)[:, None]
        texts.append(token_ids[:, 0])
        mask = np.concatenate([mask, np.ones_like(token_ids)], axis=1)
        positions = (lengths + len(texts) - 1)[:, None]
    return np.stack(texts, axis=1).tolist()


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_past_and_present_give_the_models_tokens(written, name):
    expected = results(written, name)["tokens"]
    got = decode(session(written, name), PROMPTS, NEW)
    assert [row[: len(text)] for row, text in zip(got, expected, strict=True)] == expected
    assert len({tuple(text) for text in expected}) == len(PROMPTS)


def test_a_text_ends_where_the_model_ends_it(written):
    lengths = [len(text) for text in results(written, "gpt")["tokens"]]
    assert min(lengths) < NEW, "no text of the test ends early: choose another end_id"


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_the_config_describes_the_file(written, name):
    described = config(written, name)
    model, decoder, runs = described["model"], described["model"]["decoder"], session(written, name)
    shapes = {each.name: each.shape for each in (*runs.get_inputs(), *runs.get_outputs())}
    for layer in range(decoder["num_hidden_layers"]):
        names = [decoder["inputs"][f"past_{part}_names"] for part in ("key", "value")]
        names += [decoder["outputs"][f"present_{part}_names"] for part in ("key", "value")]
        for template in names:
            shape = shapes.pop(template.replace("%d", str(layer)))
            assert (shape[1], shape[3]) == (decoder["num_key_value_heads"], decoder["head_size"])
    assert decoder["num_attention_heads"] == {"gpt": 2, "llama": 4}[name]
    assert set(shapes) == {"input_ids", "attention_mask", "position_ids", "logits"}
    assert shapes["logits"][1:] == [1, model["vocab_size"]]
    # Without an end token, one behind the vocabulary: its logit is the least float.
    size, end = TOKENIZER.vocabulary_size, END_IDS[name]
    assert (model["eos_token_id"], model["vocab_size"]) == ((size, size + 1) if end is None else (end, size))
    assert described["search"]["max_length"] == model["context_length"] == 20


def test_the_directory_is_a_bundle_that_proves_itself(written):
    from keras_transformer.export import verify_bundle

    assert verify_bundle(written / "gpt")["onnx"].ratio <= 1e-5
    assert {"genai_config.json", "tokenizer.json", "tokenizer_config.json"} <= set(
        json.loads((written / "gpt" / "manifest.json").read_text())["files"]
    )


def test_quantized_weights_of_a_half_precision_model_are_near_the_float_ones(written):
    import onnx

    ops = [{node.op_type for node in onnx.load(written / name / "model.onnx").graph.node} for name in ("gpt", "int8")]
    assert "MatMulNBits" in ops[1] - ops[0]
    feed = {"input_ids": [[5, 99, 7]], "attention_mask": [[1, 1, 1]], "position_ids": [[0, 1, 2]]}
    feed = {name: np.array(rows, "int64") for name, rows in feed.items()}
    logits = []
    for name in ("gpt", "int8"):
        runs = session(written, name)
        shapes = {each.name: each.shape for each in runs.get_inputs() if each.name not in feed}
        past = {label: np.zeros((1, shape[1], 0, shape[3]), "float32") for label, shape in shapes.items()}
        logits.append(runs.run(["logits"], feed | past)[0])
    difference = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    assert 0 < difference < 0.15
    names = ("tokenizer.json", "tokenizer_config.json")
    same = [(written / "int8" / name).read_text() == (written / "gpt" / name).read_text() for name in names]
    assert same == [True, False], "the same tokenizer; another longest text"


def test_a_quantized_table_lies_once_in_the_directory(written):
    import onnx

    graph = onnx.load(written / "int8" / "model.onnx").graph
    (codes,) = (node.input[1] for node in graph.node if node.op_type == "MatMulNBits")
    (rows,) = (node.output[0] for node in graph.node if node.op_type == "Reshape" and node.input[0] == codes)
    assert any(node.op_type == "Gather" and node.input[0] == rows for node in graph.node)
    size = {tensor.name: onnx.numpy_helper.to_array(tensor).nbytes for tensor in graph.initializer}[codes]
    assert sum(onnx.numpy_helper.to_array(each).nbytes >= size for each in graph.initializer) == 1


def test_byte_level_tokenizers_carry_over(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from keras_transformer.export.engines.hugging_face_tokenizer import write_hugging_face

    for tokenizer in (TOKENIZER, BytePair.train(TEXTS * 3, 290)):
        write_hugging_face(tokenizer, tmp_path, 20, "the engine")
        other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        for text in TEXTS:
            assert other.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
            assert other.decode(tokenizer.encode(text)) == text
        roles = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert (roles["bos_token"], roles["eos_token"], roles["pad_token"]) == ("<s>", "</s>", "<pad>")


def test_what_the_engine_cannot_carry_is_refused_before_anything_is_written(tmp_path):
    from keras_transformer.export.engines.genai.model_directory import write_genai
    from keras_transformer.export.errors import InvalidModelError
    from keras_transformer.models import Size, Transformer
    from keras_transformer.tasks import LanguageModel
    from keras_transformer.text import Characters

    model = gpt()
    with pytest.raises(InvalidModelError, match="encoder-decoder"):
        write_genai(LanguageModel(Transformer(Size(1, 8, 2, 8), 20), start_id=1), tmp_path / "no")
    with pytest.raises(InvalidModelError, match="limited to 24 tokens"):
        write_genai(model, tmp_path / "no", max_length=25)
    with pytest.raises(InvalidModelError, match="LanguageModel|language models"):
        write_genai(model.backbone, tmp_path / "no")
    model.tokenizer = Characters.train(["abc"])
    with pytest.raises(InvalidModelError, match="characters.*tokenizer=False"):
        write_genai(model, tmp_path / "no")
    model.init_cache = lambda batch, length, dtype=None: {"block_key": np.zeros((batch, 2, 16, 4))}
    with pytest.raises(InvalidModelError, match="block_key"):
        write_genai(model, tmp_path / "no", tokenizer=False)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_the_engine_gives_the_models_tokens(written, name):
    genai = pytest.importorskip("onnxruntime_genai")
    expected = results(written, name)["tokens"]
    model = genai.Model(str(written / name))
    width = max(map(len, PROMPTS))
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=width + NEW, batch_size=len(PROMPTS))
    generator = genai.Generator(model, params)
    pad = config(written, name)["model"]["pad_token_id"]
    generator.append_tokens(np.array([prompt + [pad] * (width - len(prompt)) for prompt in PROMPTS], "int32"))
    while not generator.is_done():
        generator.generate_next_token()
    for row, text in enumerate(expected):
        assert generator.get_sequence(row)[width : width + len(text)].tolist() == text


def test_the_engine_reads_text_as_the_model_does(written):
    genai = pytest.importorskip("onnxruntime_genai")
    tokenizer = genai.Tokenizer(genai.Model(str(written / "gpt")))
    for text in TEXTS:
        ids = tokenizer.encode(text).tolist()
        assert ids == TOKENIZER.encode(text)
        assert tokenizer.decode(np.array(ids, "int32")) == text


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
