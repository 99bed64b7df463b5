"""Names of inputs, outputs and axes: the same in every format, and mapped in the manifest where they cannot be."""

import json
import shutil

import numpy as np
import onnxruntime
import pytest

from keras_transformer.export import ArraySpec, InvalidBundleError, load, verify_bundle
from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.axes import numbers_of, output_axes
from keras_transformer.export.data.manifest_records import FileNames
from keras_transformer.export.runtime.generation_record import cache_names
from keras_transformer.export.runtime.runtime import named_runtime
from keras_transformer.export.tflite.tree import read_file

# Workers, and bundles that they export.
BUNDLES = [
    *(("exported", name) for name in ("encoder", "two_signatures", "same_tensor", "any_image")),
    *(("language", name) for name in ("gpt", "translator")),
]


PARAMETERS = [
    pytest.param(each, marks=[pytest.mark.xdist_group(each[0]), pytest.mark.slow], id=each[1]) for each in BUNDLES
]


@pytest.fixture(params=PARAMETERS)
def bundle(request):
    """A bundle, of a model or of a language model."""
    worker, name = request.param
    return request.getfixturevalue(worker).bundle(name)


def test_onnx_files_have_the_names_order_and_axes_of_the_manifest(bundle):
    manifest = read_manifest(bundle)
    for key, path in manifest.artifact("onnx").signatures.items():
        session = onnxruntime.InferenceSession(str(bundle / path))
        names, specs = file_names(manifest, "onnx", key), manifest.signature(key)
        values = (session.get_inputs(), session.get_outputs())
        for side, found in zip(specs, values, strict=True):
            labels = names.inputs if side is specs[0] else names.outputs
            assert [each.name for each in found] == [labels[spec.name] for spec in side]
            for spec, each in zip(side, found, strict=True):
                assert each.shape == [axis or size for axis, size in zip(spec.axes, spec.shape, strict=True)]
        inputs = set(names.inputs)
        assert names.inputs == {name: name for name in inputs}
        assert names.outputs == {
            spec.name: f"{spec.name}_output" if spec.name in inputs else spec.name for spec in specs[1]
        }


def test_tflite_files_have_the_names_and_order_of_the_manifest(bundle):
    manifest = read_manifest(bundle)
    model = read_file(bundle / "model.tflite")
    found = {each.signatureKey.decode(): each for each in model.signatureDefs}
    assert set(found) == set(manifest.artifact("tflite").signatures)
    for key, definition in found.items():
        graph, (inputs, outputs) = model.subgraphs[definition.subgraphIndex], manifest.signature(key)
        for specs, maps, indices in (
            (inputs, definition.inputs, graph.inputs),
            (outputs, definition.outputs, graph.outputs),
        ):
            names = [spec.name for spec in specs]
            assert [each.name.decode() for each in maps] == names
            if len({each.tensorIndex for each in maps}) == len(maps):
                assert [each.tensorIndex for each in maps] == list(indices)
        # The tensors, which programs see that do not use signatures.
        taken = {spec.name for spec in inputs}
        assert [graph.tensors[index].name.decode() for index in graph.inputs] == [spec.name for spec in inputs]
        for each in definition.outputs:
            name, label = each.name.decode(), graph.tensors[each.tensorIndex].name.decode()
            assert label == (f"{name}_output" if name in taken else name) or each.tensorIndex in graph.inputs
        assert file_names(manifest, "tflite", key).outputs == {spec.name: spec.name for spec in outputs}


def test_saved_models_have_the_names_of_the_manifest(exported):
    import tensorflow as tf

    path = exported.bundle("two_signatures")
    manifest, loaded = read_manifest(path), tf.saved_model.load(str(path / "saved_model"))
    for key in manifest.signatures:
        names = file_names(manifest, "saved_model", key)
        _, arguments = loaded.signatures[key].structured_input_signature
        assert set(arguments) == set(names.inputs.values())
        assert set(loaded.signatures[key].structured_outputs) == set(names.outputs.values())


def test_the_cache_is_paired_in_the_manifest(language):
    gpt, translator = (read_manifest(language.bundle(name)) for name in ("gpt", "translator"))
    cache = gpt.generation["cache"]
    assert cache == ["decoder_block_0_key", "decoder_block_0_value"]
    assert gpt.generation["memory"] == []
    names = gpt.artifact("onnx").names["decode"]
    assert [names.outputs[name] for name in cache] == [f"{name}_output" for name in cache]
    assert [names.inputs[name] for name in cache] == cache
    memory = translator.generation["memory"]
    assert memory == [spec.name for spec in translator.signature("encode").outputs]
    assert set(memory) < {spec.name for spec in translator.signature("decode").inputs}
    assert not set(memory) & set(translator.generation["cache"])


def test_new_tokens_have_the_axis_of_their_number(language):
    for name in ("gpt", "translator"):
        outputs = read_manifest(language.bundle(name)).signature("generate").outputs
        assert {spec.name: spec.axes for spec in outputs}["new_token_ids"] == ("batch", "max_new_tokens")


def test_axes_of_outputs_alone_are_named_after_them(exported):
    outputs = read_manifest(exported.bundle("any_image")).signature("serve").outputs
    assert outputs[0].axes == ("batch", "output_0_height", "output_0_width", None)
    probes = [({"batch": 2}, (2, 5, 6, 7)), ({"batch": 3}, (3, 4, 5, 6))]
    assert output_axes("y", (None, None), [(sizes, shape[:2]) for sizes, shape in probes]) == ("batch", "y_length")
    axes = output_axes("y", (None, None, None, None), probes)
    assert axes == ("batch", "y_height", "y_width", "y_axis_3")
    inputs = (
        ArraySpec("n", "int32", (), ()),
        ArraySpec("x", "float32", (), ()),
        ArraySpec("i", "int32", (2,), (None,)),
    )
    assert numbers_of(inputs, {"n": np.int32(7), "x": np.float32(1), "i": np.zeros(2)}) == {"n": 7}


def rewritten(source, target, change):
    """A copy of a bundle with another manifest."""
    shutil.copytree(source, target)
    manifest = json.loads((target / "manifest.json").read_text())
    change(manifest)
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def without_names(manifest):
    for record in manifest["artifacts"].values():
        del record["names"]
    manifest.get("generation", {}).pop("cache", None)
    manifest.get("generation", {}).pop("memory", None)


def test_bundles_of_earlier_versions_load(exported, language, tmp_path):
    bundle = rewritten(exported.bundle("two_signatures"), tmp_path / "two", without_names)
    now = load(exported.bundle("two_signatures"), signature="decode_step")
    before = load(bundle, signature="decode_step")
    arrays = now.example()
    np.testing.assert_array_equal(before(arrays)["cache"], now(arrays)["cache"])
    verify_bundle(bundle, ["onnx", "tflite"])
    bundle = rewritten(language.bundle("translator"), tmp_path / "translator", without_names)
    assert cache_names(read_manifest(bundle)) == read_manifest(language.bundle("translator")).generation["cache"]
    found, expected = (
        load(each).generate([5, 6, 7], max_new_tokens=4) for each in (bundle, language.bundle("translator"))
    )
    assert found == expected


def test_the_runtime_believes_the_manifest(exported, tmp_path):
    """Two outputs with their names exchanged give each other's values, which the verification refuses."""

    def exchange(manifest):
        names = manifest["artifacts"]["onnx"]["names"]["serve"]["outputs"]
        names["again"], names["twice"] = names["twice"], names["again"]

    bundle = rewritten(exported.bundle("same_tensor"), tmp_path / "bundle", exchange)
    x = np.arange(8, dtype="float32").reshape(2, 4)
    found = load(bundle)(x=x)
    np.testing.assert_array_equal(found["again"], 2 * x)
    np.testing.assert_array_equal(found["twice"], x)


@pytest.mark.parametrize(
    "change",
    [
        lambda names: names.update(other=names["serve"]),
        lambda names: names["serve"].pop("inputs"),
        lambda names: names["serve"]["outputs"].pop("twice"),
        lambda names: names["serve"]["outputs"].update(twice="same"),
        lambda names: names["serve"]["inputs"].update(x=""),
    ],
)
def test_wrong_names_are_refused(exported, tmp_path, change):
    bundle = rewritten(
        exported.bundle("same_tensor"),
        tmp_path / "bundle",
        lambda manifest: change(manifest["artifacts"]["onnx"]["names"]),
    )
    with pytest.raises(InvalidBundleError, match="artifact 'onnx': names of signature"):
        load(bundle)


def test_a_runtime_under_other_names():
    def runtime(arrays):
        return {"b": arrays["a"] + 1, "c": arrays["a"] + 2}

    same = FileNames({"a": "a"}, {"b": "b", "c": "c"})
    assert named_runtime(runtime, same) is runtime
    other = named_runtime(runtime, FileNames({"x": "a"}, {"y": "c"}))
    assert other({"x": 5}) == {"y": 7}
