"""The runtime: inputs, errors and concurrent calls."""

import asyncio
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from keras_transformer.export import (
    ArraySpec,
    ExportError,
    InputError,
    InvalidBundleError,
    RunError,
    UnknownFormatError,
    load,
    verify_bundle,
)
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.formats import chosen_backend
from keras_transformer.export.runtime.inputs import check_inputs
from keras_transformer.export.runtime.libraries import Library
from keras_transformer.export.runtime.runtime_model import RuntimeModel

BACKENDS = ("saved_model", "tflite", "onnx")
SPECS = (
    ArraySpec("x", "float32", (None, None, 2), ("batch", "length", None)),
    ArraySpec("ids", "int32", (None, None), ("batch", "length")),
    ArraySpec("mask", "bool", (None, None), ("batch", "length")),
)


def arrays(**changes):
    good = {"x": np.ones((3, 4, 2), "float32"), "ids": np.ones((3, 4), "int32"), "mask": np.ones((3, 4), bool)}
    return {name: array for name, array in {**good, **changes}.items() if array is not None}


def test_the_default_backend_is_the_first_that_the_bundle_has_and_that_runs_here(exported, monkeypatch):
    bundle, only = exported.bundle("mlp"), exported.bundle("only_tflite").parent / "only"
    assert load(only)(np.ones((2, 8))).keys() == load(only, "tflite")(np.ones((2, 8))).keys()
    found = []
    for modules in (("onnxruntime", "ai_edge_litert"), ("ai_edge_litert", "tensorflow"), ("tensorflow",), ()):
        monkeypatch.setattr(Library, "is_installed", property(lambda self, modules=modules: self.module in modules))
        found.append([chosen_backend(read_manifest(each)) for each in (bundle, only)])
    assert found == [["onnx", "tflite"], ["tflite", "tflite"], ["saved_model", "tflite"], ["onnx", "tflite"]]


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


def in_threads(work, count=6):
    """Runs `work(index)` in concurrent threads; returns their results."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_may_share_a_model(exported, backend):
    # Rows and lengths differ between threads, so that shared buffers would change the values.
    model = load(exported.bundle("encoder"), backend, num_threads=1)
    rng = np.random.default_rng(0)
    inputs = [
        {"token_ids": rng.integers(0, 50, (size, 3 * size)), "padding_mask": np.ones((size, 3 * size), bool)}
        for size in range(1, 7)
    ]
    expected = [model(each)["sequence"] for each in inputs]
    found = in_threads(lambda index: [model(inputs[index])["sequence"] for _ in range(10)])
    for results, wanted in zip(found, expected, strict=True):
        assert all(np.array_equal(result, wanted) for result in results)


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_a_model_may_be_awaited(exported, backend):
    model = load(exported.bundle("mlp"), backend, num_threads=1)
    inputs = [np.full((size, 8), size / 7, "float32") for size in range(1, 9)]

    async def ask_all():
        return await asyncio.gather(*(asyncio.to_thread(model, x) for x in inputs))

    for x, result in zip(inputs, asyncio.run(ask_all()), strict=True):
        np.testing.assert_array_equal(result["probabilities"], model(x)["probabilities"])


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_threads_may_write_texts_at_once(language, backend):
    # Every step updates a cache in place; a shared one would mix the texts.
    model = load(language.bundle("gpt"), backend, num_threads=1)
    prompts = [[5, 6, 7], [200, 3], [91] * 9, [17, 18, 19, 20, 21], [250], [33, 44]]
    expected = [model.generate(prompt, max_new_tokens=10) for prompt in prompts]
    assert len(set(map(tuple, expected))) > 3
    fresh = load(
        language.bundle("gpt"), backend, num_threads=1
    )  # Sessions are created on first use, here by all threads at once.
    found = in_threads(lambda index: [fresh.generate(prompts[index], max_new_tokens=10) for _ in range(3)])
    assert found == [[wanted] * 3 for wanted in expected]
    streams = [fresh.stream(prompt, max_new_tokens=10) for prompt in prompts]
    turns = list(itertools.zip_longest(*streams))
    assert [[turn[row] for turn in turns if turn[row] is not None] for row in range(6)] == expected


def test_threads_that_load_leave_stderr_as_it_was(exported, capfd):
    in_threads(lambda index: load(exported.bundle("mlp"), "tflite")(np.ones((1, 8))))
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_examples_a_few_at_a_time(exported, backend):
    model = load(exported.bundle("encoder"), backend)
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 50, (7, 5)), rng.integers(0, 2, (7, 5)).astype(bool)
    mask[:, 0] = True
    whole = model(token_ids=ids, padding_mask=mask)
    for size in (1, 3, 7, 32):
        found = model.predict({"token_ids": ids}, padding_mask=mask, batch_size=size)
        assert found.keys() == whole.keys()
        for name in whole:
            np.testing.assert_allclose(found[name], whole[name], atol=2e-5)
    for size in (0, -1, 2.0, True):
        with pytest.raises(InputError, match="a positive integer"):
            model.predict(token_ids=ids, padding_mask=mask, batch_size=size)


def test_what_has_no_batch_goes_into_every_batch_and_is_never_joined():
    engine_calls = []

    def engine(arrays):
        engine_calls.append(len(arrays["x"]))
        return {"y": arrays["x"] * arrays["scale"], "total": arrays["x"].sum(axis=0)}

    x = ArraySpec("x", "float32", (None, 2), ("batch", None))
    scale = ArraySpec("scale", "float32", (2,), (None,))
    y, total = ArraySpec("y", "float32", (None, 2), ("batch", None)), ArraySpec("total", "float32", (2,), (None,))
    rows = np.arange(10, dtype="float32").reshape(5, 2)
    model = RuntimeModel(engine, (x, scale), (y, total), ("onnx", "serve"), None)
    assert model.predict(x=rows, scale=[1, 2])["total"].tolist() == rows.sum(axis=0).tolist()
    with pytest.raises(InputError, match="'total' has no batch axis"):
        model.predict(x=rows, scale=[1, 2], batch_size=2)
    assert engine_calls == [5]
    model = RuntimeModel(lambda arrays: {"y": engine(arrays)["y"]}, (x, scale), (y,), ("onnx", "serve"), None)
    np.testing.assert_array_equal(model.predict(x=rows, scale=[1, 2], batch_size=2)["y"], rows * [1, 2])
    assert engine_calls == [5, 2, 2, 1]


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_warm_up_runs_the_shapes_asked_for(exported, backend, monkeypatch):
    model, shapes = load(exported.bundle("encoder"), backend), []
    run = model._runtime
    monkeypatch.setattr(model, "_runtime", lambda arrays: shapes.append(arrays["token_ids"].shape) or run(arrays))
    assert model.warm_up() is model
    assert shapes == [(1, 5), (1, 17), (5, 5), (5, 17), (5, 17), (1, 131)]
    shapes.clear()
    model.warm_up(batch=3, length=40)
    model.warm_up(length=2)
    assert shapes == [(3, 40), (1, 2)]
    example = model.example(batch=3, length=40)
    assert example["token_ids"].max() < 50
    assert len(set(example["token_ids"][0].tolist())) > 3
    with pytest.raises(InputError, match=r"input 'width': expected one of the axes batch, length"):
        model.warm_up(width=3)
    with pytest.raises(InputError, match="a size of 1 or more, got 0"):
        model.warm_up(batch=0)


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
@pytest.mark.parametrize("name, signatures", [("gpt", 2), ("translator", 3)])
def test_warm_up_runs_every_step_of_a_text(language, backend, name, signatures, monkeypatch):
    model, seen = load(language.bundle(name), backend), []
    call = model.steps._call
    monkeypatch.setattr(model.steps, "_call", lambda key, arrays, cache: seen.append(key) or call(key, arrays, cache))
    assert model.warm_up(batch_size=2, length=3) is model
    assert seen == ["encode", "prefill", "decode"][-signatures:]


def test_a_failing_runtime_has_an_error_of_its_own(exported):
    model = load(exported.bundle("encoder"), "onnx")
    with pytest.raises(RunError, match="onnx: signature 'serve' cannot be computed: .*out of data bounds") as caught:
        model(token_ids=[[77]], padding_mask=[[True]])
    assert (caught.value.backend, caught.value.signature) == ("onnx", "serve")


@pytest.mark.parametrize(
    "results, words",
    [
        ({"z": np.ones((2, 3), "float32")}, "it returns z, not y"),
        ({"y": np.ones((2, 4), "float32")}, r"output 'y' is float32 \(2, 4\), not float32 \(batch, 3\)"),
        ({"y": np.ones((2, 3), "float64")}, "output 'y' is float64"),
        ({"y": np.ones(3, "float32")}, r"output 'y' is float32 \(3,\)"),
    ],
)
def test_results_that_are_not_what_the_manifest_says(results, words):
    x, y = (ArraySpec(name, "float32", (None, 3), ("batch", None)) for name in "xy")
    model = RuntimeModel(lambda arrays: results, (x,), (y,), ("tflite", "serve"), None)
    with pytest.raises(RunError, match=words):
        model(np.ones((2, 3)))


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_threads_are_counted_in_whole_numbers(exported, count):
    with pytest.raises(ExportError, match="num_threads must be a positive integer"):
        load(exported.bundle("mlp"), num_threads=count)


@pytest.mark.parametrize(
    "changes, name, words",
    [
        ({"x": None}, "x", ("float32 (batch, length, 2)", "nothing")),
        ({"y": 1}, "y", ("the inputs are named 'x', 'ids', 'mask'",)),
        ({"x": np.ones((3, 4))}, "x", ("float32 (batch, length, 2)", "(3, 4)")),
        ({"x": np.ones((3, 4, 5))}, "x", ("float32 (batch, length, 2)", "(3, 4, 5)")),
        ({"ids": np.ones((3, 5), int)}, "ids", ("length=4", "(3, 5)")),
        ({"ids": np.ones((3, 4))}, "ids", ("int32", "float64")),
        ({"ids": np.full((3, 4), 2**40)}, "ids", ("int64 values outside the range of int32",)),
        ({"mask": np.full((3, 4), 2)}, "mask", ("outside the range of bool",)),
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


def test_token_ids_that_would_wrap_are_named():
    for name in ("token_ids", "source_token_ids"):
        specs = (ArraySpec(name, "int32", (None, None), ("batch", "length")),)
        for ids in ([[3, -7]], np.array([[-7]], "int64")):
            with pytest.raises(InputError, match=rf"'{name}'.* of 0 or more.*the token id -7"):
                check_inputs(specs, {name: ids})
        assert check_inputs(specs, {name: [[0, 7]]})[name].tolist() == [[0, 7]]


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
    with pytest.raises(InvalidBundleError, match=r"contains no manifest\.json"):
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
    change_manifest(copy, lambda manifest: manifest["files"].update({path: {"bytes": 1, "sha256": "0" * 64}}))
    with pytest.raises(InvalidBundleError, match="is outside the bundle"):
        load(copy)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda manifest: manifest.update(schema=99), "schema 99: a newer version wrote it"),
        (lambda manifest: manifest.pop("files"), "lacks the field 'files'"),
        (lambda manifest: manifest["signatures"]["serve"].pop("inputs"), "incomplete"),
        (lambda manifest: manifest["artifacts"]["onnx"].pop("signatures"), "incomplete"),
        (lambda manifest: manifest.update(tolerance=float("nan")), "NaN is not a JSON number"),
        (lambda manifest: manifest.update(tolerance=-1.0), "tolerance"),
        (lambda manifest: manifest.pop("schema"), "schema None"),
    ],
)
def test_an_incomplete_manifest(copy, change, words):
    change_manifest(copy, change)
    with pytest.raises(InvalidBundleError, match=words):
        load(copy)


@pytest.mark.parametrize("backend, file", [("onnx", "model.onnx"), ("tflite", "model.tflite")])
def test_an_altered_file_is_refused_unless_that_is_not_looked_at(copy, backend, file):
    content = bytearray((copy / file).read_bytes())
    x = np.random.default_rng(0).standard_normal((64, 8))
    before = load(copy, backend)(x)["probabilities"]
    weights = [numpy_helper.to_array(each) for each in onnx.load(copy / "model.onnx").graph.initializer]
    weight = next(each for each in weights if each.dtype == np.float32 and each.size > 8).ravel()[3].tobytes()
    place = content.index(weight)
    content[place : place + 4] = bytes(4)
    (copy / file).write_bytes(content)
    with pytest.raises(InvalidBundleError, match=f"'{file}' was altered: its sha256"):
        load(copy, backend)
    assert not np.array_equal(load(copy, backend, check=False)(x)["probabilities"], before)
    with pytest.raises(InvalidBundleError, match=f"'{file}' was altered: its sha256"):
        verify_bundle(copy, [backend])


def test_only_the_files_that_are_run_are_hashed(copy):
    (copy / "model.tflite").write_bytes(bytes((copy / "model.tflite").stat().st_size))
    assert load(copy, "onnx")(np.ones((1, 8)))["probabilities"].shape == (1, 3)
    with pytest.raises(InvalidBundleError, match=r"'model\.tflite' was altered"):
        load(copy, "tflite")


def test_links_may_not_lead_out(copy):
    outside = copy.parent / "outside.onnx"
    (copy / "model.onnx").rename(outside)
    (copy / "model.onnx").symlink_to(outside)
    with pytest.raises(InvalidBundleError, match=r"'model\.onnx' is outside the bundle"):
        load(copy)
    (copy / "model.onnx").unlink()
    outside.rename(copy / "hidden.onnx")
    (copy / "model.onnx").symlink_to("hidden.onnx")
    assert load(copy)(np.ones((1, 8)))["probabilities"].shape == (1, 3)
    (copy / "unlisted").symlink_to(copy.parent)
    with pytest.raises(InvalidBundleError, match="'unlisted' is a link that leads out"):
        load(copy)


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx", "unlisted"])
def test_a_pipe_is_not_waited_for(copy, name):
    (copy / name).unlink(missing_ok=True)
    os.mkfifo(copy / name)
    with pytest.raises(InvalidBundleError):
        load(copy)


def test_a_signature_without_probes_is_not_proven(copy):
    def rename(manifest):
        manifest["signatures"]["other"] = manifest["signatures"]["serve"]
        manifest["artifacts"]["onnx"]["signatures"]["other"] = "model.onnx"

    change_manifest(copy, rename)
    with pytest.raises(InvalidBundleError, match="no probe of signature 'other'"):
        verify_bundle(copy, ["onnx"])


@pytest.mark.parametrize("name", ["keras_tensor", "keras_tensor_17", "input_layer", "input_layer_3", "input"])
def test_an_input_without_a_name_takes_those_that_keras_gives_it(name):
    spec = ArraySpec("input", "float32", (None, 2), ("batch", None))
    (found,) = check_inputs((spec,), {name: np.ones((3, 2))}).values()
    assert found.shape == (3, 2)
    model = RuntimeModel(
        lambda given: {"y": given["input"]},
        (spec,),
        (dataclasses.replace(spec, name="y"),),
        ("onnx", "serve"),
        pathlib.Path("b"),
    )
    np.testing.assert_array_equal(model(**{name: np.ones((1, 2))})["y"], [[1, 1]])


def test_a_wrong_name_says_the_right_one():
    spec = ArraySpec("left_right", "float32", (None,), ("batch",))
    with pytest.raises(InputError, match="no input is named 'images': the input is named 'left_right'") as caught:
        check_inputs((spec,), {"images": [1.0]})
    assert (caught.value.name, caught.value.expected) == ("images", "one of left_right")
    assert check_inputs((spec,), {"left-right": [1.0]})["left_right"] == [1.0]
    with pytest.raises(
        InputError, match="no input is named 'masks': the inputs are named 'x', 'ids', 'mask'; did you mean 'mask'"
    ):
        check_inputs(SPECS, arrays(masks=1))
    with pytest.raises(InputError, match="no input is named 'keras_tensor'"):
        check_inputs(SPECS, arrays(keras_tensor=1))


def test_a_model_says_what_it_takes():
    specs = (ArraySpec("<x>", "float32", (None, 2), ("batch", None)), ArraySpec("n", "int32", (), ()))
    model = RuntimeModel(
        dict, specs, (ArraySpec("y", "float32", (None,), ("batch",)),), ("onnx", "serve"), pathlib.Path("b")
    )
    assert repr(model).splitlines() == [
        "RuntimeModel of 'b': onnx, signature 'serve'",
        "        name  takes and returns",
        "input   <x>   float32 (batch, 2)",
        "input   n     int32 ()",
        "output  y     float32 (batch)",
        "model(<x>=..., n=...) returns a dict of numpy arrays; also model.example()",
    ]
    assert "<td>&lt;x&gt;</td><td>float32 (batch, 2)</td>" in model._repr_html_()


def test_a_bundle_that_is_replaced_while_it_is_read_is_read_again(exported, tmp_path, monkeypatch):
    """The second of two bundles is complete: its load must not fail because the first was taken away."""
    source = exported.bundle("mlp")
    shutil.copytree(source, tmp_path / "b")
    from keras_transformer.export.loading import load as module

    found, asked = module.check_hashes, []

    def swapped(directory, *rest):
        asked.append(directory)
        if len(asked) == 1:
            shutil.rmtree(tmp_path / "b")
            shutil.copytree(source, tmp_path / "b")
            raise InvalidBundleError("'model.onnx' was altered: its sha256 is not the manifest's")
        return found(directory, *rest)

    monkeypatch.setattr(module, "check_hashes", swapped)
    assert load(tmp_path / "b", "onnx").outputs
    assert len(asked) == 2
    monkeypatch.setattr(module, "check_hashes", lambda *_: (_ for _ in ()).throw(InvalidBundleError("was altered")))
    with pytest.raises(InvalidBundleError, match="was altered"):
        load(tmp_path / "b", "onnx")


def test_weights_in_a_file_that_the_manifest_does_not_list_are_refused(exported, tmp_path):
    bundle = tmp_path / "b"
    shutil.copytree(exported.bundle("mlp"), bundle)
    (path,) = bundle.glob("*.onnx")
    onnx.save_model(
        onnx.load(path),
        path,
        save_as_external_data=True,
        location="other.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    record = json.loads((bundle / "manifest.json").read_text())
    content = path.read_bytes()
    record["files"][path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (bundle / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(InvalidBundleError, match="'other.bin', a file that the manifest does not list"):
        load(bundle, "onnx")


def test_a_language_model_says_how_it_is_called(language):
    model = load(language.bundle("gpt"), "onnx")
    assert repr(model).splitlines()[0] == "RuntimeLanguageModel, decoder"
    assert "model.generate(" in repr(model)
    assert "<td>vocabulary</td>" in model._repr_html_()
