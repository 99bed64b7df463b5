"""The runtime: what it takes, what it refuses, and what it must not import."""

import json
import pathlib
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from keras_transformer.export import ArraySpec, InputError, InvalidBundleError, UnknownFormatError, load
from keras_transformer.export.runtime import check_inputs

BACKENDS = ("saved_model", "tflite", "onnx")
SPECS = (
    ArraySpec("x", "float32", (None, None, 2), ("batch", "length", None)),
    ArraySpec("ids", "int32", (None, None), ("batch", "length")),
    ArraySpec("mask", "bool", (None, None), ("batch", "length")),
)


def arrays(**changes):
    good = {"x": np.ones((3, 4, 2), "float32"), "ids": np.ones((3, 4), "int32"), "mask": np.ones((3, 4), bool)}
    return {name: array for name, array in {**good, **changes}.items() if array is not None}


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_needs_neither_tensorflow_nor_keras(exported, backend):
    script = (
        "import sys, numpy as np\n"
        "from keras_transformer.export import runtime\n"
        f"model = runtime.load({str(exported.bundle('mlp'))!r}, {backend!r})\n"
        "assert model(np.ones((2, 8)))['probabilities'].shape == (2, 3)\n"
        "from keras_transformer.export.verify import verify_bundle\n"
        f"verify_bundle({str(exported.bundle('mlp'))!r}, [{backend!r}])\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'tensorflow', 'keras', 'tf2onnx', 'torch'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_ways_to_call(exported, backend):
    model = load(exported.bundle("mlp"), backend)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    bare, named, keyword = model(x), model({"input": x}), model(input=x)
    assert list(bare) == ["probabilities"]
    np.testing.assert_array_equal(bare["probabilities"], named["probabilities"])
    np.testing.assert_array_equal(bare["probabilities"], keyword["probabilities"])
    np.testing.assert_allclose(bare["probabilities"].sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_may_change_from_call_to_call(exported, backend):
    model = load(exported.bundle("encoder"), backend)
    ids = np.random.default_rng(0).integers(0, 50, (4, 9))
    whole = model(token_ids=ids, padding_mask=np.ones((4, 9), bool))["sequence"]
    for row, length in ((2, 9), (0, 4), (3, 9)):
        mask = np.ones((1, length), bool)
        got = model(token_ids=ids[row : row + 1, :length], padding_mask=mask)["sequence"]
        if length == 9:
            np.testing.assert_allclose(got[0], whole[row], atol=2e-5)
        assert got.shape == (1, length, 32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_changes_nothing(exported, backend):
    model = load(exported.bundle("encoder"), backend)
    ids = np.array([[7, 8, 9]])
    alone = model(token_ids=ids, padding_mask=np.ones((1, 3), bool))["sequence"]
    padded_ids = np.array([[7, 8, 9, 1, 2]])
    mask = np.array([[True, True, True, False, False]])
    padded = model(token_ids=padded_ids, padding_mask=mask)["sequence"][:, :3]
    np.testing.assert_allclose(padded, alone, atol=1e-5)
    shown = model(token_ids=padded_ids, padding_mask=np.ones((1, 5), bool))["sequence"][:, :3]
    assert np.abs(shown - alone).max() > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_are_the_callers_own(exported, backend):
    model = load(exported.bundle("mlp"), backend)
    first = model(np.zeros((2, 8)))["probabilities"]
    kept = first.copy()
    model(np.ones((2, 8)))
    np.testing.assert_array_equal(first, kept)


def test_threads_may_share_a_tflite_model(exported):
    model = load(exported.bundle("mlp"), "tflite", num_threads=1)
    inputs = [np.full((size, 8), size / 7, "float32") for size in range(1, 7)]
    expected = [model(x)["probabilities"] for x in inputs]
    wrong = []

    def work(index):
        for _ in range(50):
            if not np.array_equal(model(inputs[index])["probabilities"], expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "changes, name, words",
    [
        ({"x": None}, "x", ("float32 (batch, length, 2)", "nothing")),
        ({"y": 1}, "y", ("one of x, ids, mask", "unknown")),
        ({"x": np.ones((3, 4))}, "x", ("float32 (batch, length, 2)", "(3, 4)")),
        ({"x": np.ones((3, 4, 5))}, "x", ("float32 (batch, length, 2)", "(3, 4, 5)")),
        ({"ids": np.ones((3, 5), int)}, "ids", ("length=4", "(3, 5)")),
        ({"ids": np.ones((3, 4))}, "ids", ("int32", "float64")),
        ({"ids": np.full((3, 4), 2**40)}, "ids", ("int64 values that int32 cannot hold",)),
        ({"mask": np.full((3, 4), 2)}, "mask", ("bool cannot hold",)),
        ({"mask": np.ones((3, 4))}, "mask", ("bool", "float64")),
        ({"x": np.full((3, 4, 2), "a")}, "x", ("float32", "<U1")),
        ({"ids": [[1, 2], [3]]}, "ids", ("a ragged list",)),
        ({"x": np.ones((3, 4, 2), complex)}, "x", ("complex128",)),
    ],
)
def test_wrong_inputs_are_named(changes, name, words):
    with pytest.raises(InputError) as caught:
        check_inputs(SPECS, arrays(**changes))
    assert caught.value.name == name
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_casts_that_lose_nothing_are_made():
    checked = check_inputs(
        SPECS, {"x": np.ones((3, 4, 2)), "ids": np.full((3, 4), 7), "mask": np.array([[1, 0, 1, 1]] * 3)}
    )
    assert [checked[spec.name].dtype.name for spec in SPECS] == ["float32", "int32", "bool"]
    assert checked["mask"][0].tolist() == [True, False, True, True]
    assert checked["ids"].max() == 7
    pixels = check_inputs(SPECS, arrays(x=np.full((3, 4, 2), 200, "uint8")))["x"]
    assert pixels.dtype == np.float32
    assert pixels.max() == 200


def test_a_bare_array_needs_a_single_input(exported):
    with pytest.raises(InputError, match="padding_mask, token_ids|token_ids, padding_mask"):
        load(exported.bundle("encoder"))(np.ones((1, 2)))


def test_unknown_backend_and_signature(exported):
    with pytest.raises(UnknownFormatError, match="'coreml'; valid: saved_model, tflite, onnx"):
        load(exported.bundle("mlp"), "coreml")
    with pytest.raises(InvalidBundleError, match="no signature 'prefill'; the bundle has serve"):
        load(exported.bundle("mlp"), signature="prefill")
    with pytest.raises(InvalidBundleError, match="no onnx artifact; it has tflite"):
        load(exported.bundle("only_tflite").parent / "only", "onnx")


@pytest.fixture
def copy(exported, tmp_path):
    return pathlib.Path(shutil.copytree(exported.bundle("mlp"), tmp_path / "copy"))


def change_manifest(directory, change):
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_no_bundle_at_all(tmp_path):
    with pytest.raises(InvalidBundleError, match="no such bundle"):
        load(tmp_path / "nowhere")
    with pytest.raises(InvalidBundleError, match=r"holds no manifest\.json"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InvalidBundleError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "something else"}')
    with pytest.raises(InvalidBundleError, match="not the manifest of a bundle"):
        load(tmp_path)


def test_a_missing_or_cut_file(copy):
    content = (copy / "model.onnx").read_bytes()
    (copy / "model.onnx").write_bytes(content[:-10])
    with pytest.raises(InvalidBundleError, match=r"'model\.onnx' does not have the size"):
        load(copy)
    (copy / "model.onnx").unlink()
    with pytest.raises(InvalidBundleError, match=r"'model\.onnx' is missing"):
        load(copy)


@pytest.mark.parametrize("backend, file", [("onnx", "model.onnx"), ("tflite", "model.tflite")])
def test_a_file_full_of_zeros(copy, backend, file):
    (copy / file).write_bytes(bytes((copy / file).stat().st_size))
    with pytest.raises(InvalidBundleError, match=backend):
        load(copy, backend)


@pytest.mark.parametrize("path", ["../outside.onnx", "/etc/hostname"])
def test_a_manifest_cannot_point_outside(copy, path):
    (copy.parent / "outside.onnx").write_bytes((copy / "model.onnx").read_bytes())

    def escape(manifest):
        manifest["artifacts"]["onnx"]["signatures"]["serve"] = path

    change_manifest(copy, escape)
    with pytest.raises(InvalidBundleError, match="not among the files"):
        load(copy)
    change_manifest(copy, lambda manifest: manifest["files"].update({path: {"bytes": 1, "sha256": ""}}))
    with pytest.raises(InvalidBundleError, match="lies outside the bundle"):
        load(copy)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda manifest: manifest.update(schema=99), "schema 99"),
        (lambda manifest: manifest.pop("files"), "lacks the field 'files'"),
        (lambda manifest: manifest["signatures"]["serve"].pop("inputs"), "incomplete"),
        (lambda manifest: manifest["artifacts"]["onnx"].pop("signatures"), "incomplete"),
        (lambda manifest: manifest.update(tolerance=float("nan")), "tolerance"),
    ],
)
def test_an_incomplete_manifest(copy, change, words):
    change_manifest(copy, change)
    with pytest.raises(InvalidBundleError, match=words):
        load(copy)
