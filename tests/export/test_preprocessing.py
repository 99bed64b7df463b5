"""Layers of strings, vocabularies and hashes, in files and in front of them."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys

import jsonschema
import keras
import numpy as np
import pytest
from keras import layers

from keras_transformer.export.bundle.preprocessing import read_vocabularies, write_vocabularies
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.checks import IncompleteError
from keras_transformer.export.data.manifest import Manifest, manifest_schema
from keras_transformer.export.data.preprocessing.layers import (
    Discretization,
    HashedCrossing,
    Hashing,
    Lookup,
    TextVectorization,
)
from keras_transformer.export.data.preprocessing.steps import Preprocessing, Step
from keras_transformer.export.errors import InputError, InvalidBundleError, UnsupportedOpError
from keras_transformer.export.runtime.hashing import cross_hash, farm_hash, sip_hash
from keras_transformer.export.runtime.inputs import check_inputs
from keras_transformer.export.runtime.preprocessing import preprocessor

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
WORKER = pathlib.Path(__file__).with_name("preprocessing_worker.py")
CASES = (
    *("lookup", "lookup_of_several_unknown", "lookup_one_hot", "lookup_multi_hot", "lookup_count", "lookup_tf_idf"),
    *("text", "text_of_any_length", "text_bigrams", "text_tf_idf", "text_count", "characters", "rows_of_tokens"),
    *("hashing", "hashing_with_salt", "hashing_of_numbers", "numbers", "numbers_of_several_unknown"),
    *("numbers_multi_hot", "crossed", "nested", "two_inputs", "feature_space"),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    out = tmp_path_factory.mktemp("preprocessing") / "results.json"
    subprocess.run([sys.executable, str(WORKER), str(out)], check=True, capture_output=True)
    return json.loads(out.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "tflite", "onnx"])
@pytest.mark.parametrize("case", CASES)
def test_bundles_compute_what_keras_computes(files, case, format):
    assert files[case][format]["difference"] is not None
    assert files[case][format]["difference"] < 2e-6


@pytest.mark.slow
def test_the_report_says_where_each_input_went(files):
    inside, in_front = "in the file", "in front of the file"
    two = files["two_inputs"]
    assert two["saved_model"]["preprocessing"] == {"text": inside, "color": inside}
    assert two["tflite"]["preprocessing"] == {"text": in_front, "color": in_front}
    assert two["onnx"]["preprocessing"] == {"text": in_front, "color": inside}
    assert files["numbers"]["tflite"]["preprocessing"] is None


@pytest.mark.slow
def test_the_page_of_the_bundle_lists_the_steps(files):
    rows = re.findall(r"<tr>(.*?)</tr>", files["page"].partition("In front of the files")[2].partition("</table>")[0])
    cells = [[re.sub("<.*?>", "", cell) for cell in re.findall("<t[hd]>(.*?)</t[hd]>", row)] for row in rows]
    assert cells == [
        ["", "reads", "step", "makes", "dtype"],
        ["TFLite", "text", "TextVectorization", "text", "int64"],
        ["TFLite", "color", "Lookup", "color", "int64"],
        ["ONNX", "text", "TextVectorization", "text", "int64"],
    ]


@pytest.mark.slow
def test_quantized_files_take_texts(files):
    found = files["quantized"]
    assert len(found) == 6
    assert all(0 < each < 0.03 for each in found.values()), found


@pytest.mark.slow
def test_the_manifest_describes_the_steps(files):
    record = files["record"]
    jsonschema.Draft202012Validator(manifest_schema()).validate(record)
    manifest = Manifest.from_dict(record)
    assert manifest.to_dict() == record
    assert [each.dtype for each in manifest.signature("serve").inputs] == ["string", "string"]
    assert not manifest.artifact("saved_model").preprocessing
    (text,) = manifest.artifact("onnx").preprocessing["serve"].steps
    assert (text.inputs, text.output, text.operation.layer) == (("text",), "text", "TextVectorization")
    outputs = {each.name: each.dtype for each in manifest.artifact("onnx").preprocessing["serve"].outputs}
    assert outputs == {"text": "int64", "color": "string"}
    record["artifacts"]["onnx"]["preprocessing"]["serve"]["steps"][0]["inputs"] = ["title"]
    with pytest.raises(InvalidBundleError, match="title"):
        Manifest.from_dict(record)


def test_hashes_are_those_of_tensorflow():
    import tensorflow as tf

    random = np.random.default_rng(0)
    texts = [random.bytes(size) for size in [*range(200), 255, 256, 257, 1000]]

    assert [farm_hash(each) % 1009 for each in texts] == tf.strings.to_hash_bucket_fast(texts, 1009).numpy().tolist()
    expected = tf.strings.to_hash_bucket_strong(texts, 1009, [5, 2**40]).numpy().tolist()
    assert [sip_hash(each, (5, 2**40)) % 1009 for each in texts] == expected
    crosses = tf.sparse.cross_hashed([tf.constant([["größe"]]), tf.constant([[-3]], tf.int64)], 1009)
    assert cross_hash([farm_hash("größe".encode()), -3]) % 1009 == int(crosses.values[0])


def computed(operation, *arrays, vocabulary=()):
    """What one step computes."""
    names = [f"x{number}" for number in range(len(arrays))]
    outputs = (ArraySpec("y", "int64", (None,), ("batch",)),)
    preprocess = preprocessor(
        Preprocessing((Step(tuple(names), "y", "int64", operation),), outputs), {"v": list(vocabulary)}
    )
    return preprocess(dict(zip(names, map(np.asarray, arrays), strict=True)))["y"].tolist()


def test_lookups():
    assert computed(Lookup("v"), ["b", "x", ""], vocabulary=["a", "b"]) == [2, 0, 0]
    masked = Lookup("v", first_index=2, unknown_index=1, mask="", mask_index=0)
    assert computed(masked, [["b", "x", ""]], vocabulary=["a", "b"]) == [[3, 1, 0]]
    remainders = Lookup("v", first_index=3, unknown_count=3, hashes=False)
    assert computed(remainders, [7, -1, 8, 10], vocabulary=[10]) == [1, 2, 2, 3]
    with pytest.raises(InputError, match="'x0': expected tokens of the vocabulary, got 'x'"):
        computed(Lookup("v", first_index=0, unknown_count=0), ["a", "x"], vocabulary=["a"])


TEXTS = ["The CAT's\tmat\u00a0is ÄRGER!", "", "a b c d e"]


@pytest.mark.parametrize("standardize", ["lower_and_strip_punctuation", "lower", "strip_punctuation", None])
@pytest.mark.parametrize("split", ["whitespace", "character"])
@pytest.mark.parametrize("ngrams", [None, (2, 1)])
def test_texts_are_cut_as_keras_does(standardize, split, ngrams):
    vocabulary = [
        "the",
        "The",
        "cats",
        "mat\u00a0is",
        "c",
        "CAT's mat\u00a0is",
        "a b",
        "d",
        "T",
        "t",
        "ÄRGER",
        " ",
        "Ä",
    ]
    layer = layers.TextVectorization(standardize=standardize, split=split, ngrams=ngrams, vocabulary=vocabulary)
    lookup = Lookup("v", first_index=2, unknown_index=1, mask="")
    operation = TextVectorization(lookup, standardize, split, ngrams)

    assert computed(operation, TEXTS, vocabulary=vocabulary) == np.asarray(layer(TEXTS)).tolist()


def test_texts_have_at_least_one_column():
    operation = TextVectorization(Lookup("v"), padding=7)
    assert computed(operation, ["", "  "]) == [[7], [7]]


def test_hashing_and_boundaries():
    words, numbers = ["a", "", "größe"], [3, -1, 2**40]
    for options in ({}, {"mask": "", "salt": None}, {"salt": (3, 7)}):
        layer = layers.Hashing(9, mask_value=options.get("mask"), salt=options.get("salt"))
        assert computed(Hashing(9, **options), words) == np.asarray(layer(words)).tolist()
    assert computed(Hashing(9), numbers) == np.asarray(layers.Hashing(9)(np.array(numbers))).tolist()
    crossed = layers.HashedCrossing(9)([np.array(words), np.array(numbers)])
    assert computed(HashedCrossing(9), words, numbers) == np.asarray(crossed).tolist()
    assert computed(Discretization((-1.0, 0.5)), np.array([-2, -1, 0.4, 0.5], "float32")) == [0, 1, 1, 2]


WRONG = {
    "another layer": {"layer": "Dense"},
    "no name": {"output": None},
    "a dtype": {"dtype": "string"},
    "an index": {"first_index": -1},
    "a salt": {"salt": [1]},
    "a path": {"vocabulary": None},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_wrong_records_are_refused(change):
    record = Step(("x",), "y", "int64", Lookup("v")).to_dict()
    assert Step.from_dict(record, "the record").to_dict() == record
    with pytest.raises(IncompleteError, match="the record"):
        Step.from_dict(record | change, "the record")


def test_vocabularies(tmp_path):
    tokens = {"preprocessing/a.json": ["größe", "", "two\nlines", '"'], "preprocessing/b.json": [3, -(2**60)]}
    write_vocabularies(tmp_path, tokens)
    assert read_vocabularies(tmp_path, tokens) == tokens
    for content in ("{}", '["a", 1]', "[true]", "[", "[0.5]"):
        (tmp_path / "v.json").write_text(content)
        with pytest.raises(InvalidBundleError, match=r"v\.json"):
            read_vocabularies(tmp_path, ["v.json"])


def test_strings_are_text_bytes_or_objects():
    specs = (ArraySpec("x", "string", (None,), ("batch",)),)
    expected = ["größe", "", "a"]
    encoded = [each.encode() for each in expected]
    for given in (expected, encoded, np.array(expected, object), np.array(encoded, object), np.array(encoded)):
        found = check_inputs(specs, {"x": given})["x"]
        assert found.dtype.kind == "U"
        assert found.tolist() == expected
    for given in ([1, 2], np.array(["a", None], object), [b"\xff"]):
        with pytest.raises(InputError, match=r"'x': expected string \(batch\)"):
            check_inputs(specs, {"x": given})


def test_steps_are_only_those_that_are_needed():
    from keras_transformer.export.spec.preprocessed.split_model import split_model

    city, age = keras.Input((), dtype="string", name="city"), keras.Input((), name="age")
    lookup = layers.StringLookup(vocabulary=["a"])(city)
    layers.Hashing(5)(city)  # Nothing reads it.
    grade = layers.Discretization([1.0, 2.0])(age)
    cross = layers.HashedCrossing(9)([lookup, grade])
    model = keras.Model([city, age], [cross, layers.Rescaling(2.0)(age)])
    split = split_model(model)

    assert [each.name for each in split.core.inputs] == ["age", "city_age_hashed_crossing"]
    assert [each.operation.layer for each in split.steps] == ["Lookup", "Discretization", "HashedCrossing"]
    assert split.vocabularies == {"preprocessing/city_string_lookup.json": ["a"]}
    assert dataclasses.asdict(split.steps[1].operation) == {"boundaries": (1.0, 2.0)}


@keras.saving.register_keras_serializable("test_preprocessing")
class Lower(layers.Layer):
    """A layer of strings of a user."""

    def call(self, x):
        import tensorflow as tf

        return tf.strings.lower(x)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype="string")


def test_other_layers_of_strings_are_in_the_saved_model_alone(tmp_path):
    from keras_transformer.export import export, load

    x = keras.Input((), dtype="string", name="x")
    model = keras.Model(x, layers.StringLookup(vocabulary=["red", "green"])(Lower(name="small")(x)))
    with pytest.raises(UnsupportedOpError, match="onnx: op Lower of layer 'small'.*a SavedModel contains it"):
        export(model, tmp_path / "bundle", ["onnx", "saved_model"], progress=False)
    export(model, tmp_path / "bundle", ["saved_model"], progress=False)
    assert load(tmp_path / "bundle", "saved_model")(["GREEN", "Red", "x"])["output"].tolist() == [2, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "tflite", "onnx"])
def test_files_return_strings(tmp_path, format):
    from keras_transformer.export import export, load

    x = keras.Input((), dtype="int64", name="x")
    model = keras.Model(x, layers.StringLookup(vocabulary=["red", "größe"], invert=True)(x))
    export(model, tmp_path / "bundle", [format], progress=False)
    found = load(tmp_path / "bundle", format)([2, 0, 1, -1, 2**40])["output"]
    assert found.tolist() == ["größe", "[UNK]", "red", "[UNK]", "[UNK]"]


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "cookbook" / "preprocessing.md"
WORDS = ["the", "cats", "größe", "東京", "a\u0301"]
HARD_TEXTS = [
    *(
        "The CAT'S größe!",
        "",
        " \t\n",
        "x" * 99,
        "東京 タワー, a\u0301 \u00e1",
        "ÄRGER größe",
        "a\u00a0b the\u2003cats",
    ),
    *(
        "the\x0bthe\x0cthe\rthe\x1cthe",
        "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~' the",
        "🚀 THE the. cats-the",
        "the cats the cats the",
    ),
]
LOOKUP = Lookup("v", first_index=2, unknown_index=1, mask="")


def block_of(language):
    return re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
@pytest.mark.parametrize("length", [4, None])
def test_the_javascript_of_the_page_computes_the_same(tmp_path, length):
    operation = TextVectorization(LOOKUP, length=length)
    step = json.dumps(dataclasses.asdict(operation))
    call = f"console.log(JSON.stringify(vectorized({step}, {json.dumps(WORDS)}, {json.dumps(HARD_TEXTS)})))"
    (tmp_path / "page.js").write_text(f"{block_of('js')}\n{call}\n")
    found = subprocess.run(["node", str(tmp_path / "page.js")], check=True, capture_output=True, text=True).stdout
    assert json.loads(found) == computed(operation, HARD_TEXTS, vocabulary=WORDS)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_cpp_of_the_page_computes_the_same(tmp_path):
    table = ", ".join(f"{{{json.dumps(token, ensure_ascii=False)}, {number}}}" for number, token in enumerate(WORDS, 2))
    main = (
        f"#include <iostream>\nint main() {{ Lookup lookup{{{{{table}}}, 1}};\n"
        "for (std::string text; std::getline(std::cin, text, '\\0');) {\n"
        'for (auto each : vectorized(lookup, text, 4, 0)) std::cout << each << " "; std::cout << std::endl; } }\n'
    )
    (tmp_path / "page.cpp").write_text(block_of("cpp") + main)
    subprocess.run(["g++", "-std=c++17", "-o", str(tmp_path / "page"), str(tmp_path / "page.cpp")], check=True)
    texts = "".join(f"{each}\0" for each in HARD_TEXTS)
    found = subprocess.run([str(tmp_path / "page")], input=texts.encode(), check=True, capture_output=True).stdout
    rows = [[int(each) for each in line.split()] for line in found.decode().splitlines()]
    assert rows == computed(TextVectorization(LOOKUP, length=4), HARD_TEXTS, vocabulary=WORDS)


@pytest.mark.parametrize("twin", ["float32_twin", "streamed_twin"])
def test_a_twin_has_what_layers_learned_from_data(twin):
    import tensorflow as tf

    from keras_transformer.export.spec import float32

    policy = keras.DTypePolicy("mixed_bfloat16")
    scale, lookup = layers.Normalization(dtype=policy), layers.IntegerLookup()
    words = layers.TextVectorization(output_mode="tf_idf")
    scale.adapt(np.array([[1.0, 20.0], [5.0, 50.0]]))
    lookup.adapt(np.array([7, 7, 9]))
    words.adapt(tf.constant(["a cat", "a dog", "cat"]))
    inputs = keras.Input((2,)), keras.Input((), dtype="int64"), keras.Input((), dtype="string")
    model = keras.Model(inputs, [layer(x) for layer, x in zip((scale, lookup, words), inputs, strict=True)])
    arrays = tf.constant([[1.0, 20.0]]), tf.constant([9], "int64"), tf.constant(["a cat zebra"])

    found, expected = getattr(float32, twin)(model)(arrays), model(arrays)
    assert [np.asarray(each).tolist() for each in found[:2]] == [[[-1, -1]], [2]]
    np.testing.assert_array_equal(found[2], expected[2])
