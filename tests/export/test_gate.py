"""What the gate rests on: probes that reach, the limits, references of the Keras model, every probe, and the weights."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.export import ParityError, Probe, export
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import CEILING
from keras_transformer.export.errors import WeightError
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.spec.language.signatures import LanguageSignatures
from keras_transformer.export.verification import outputs, verify
from keras_transformer.export.verification.comparison import UNMEASURED

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")
SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=8)
VOCABULARY = 30


def tagger(max_sequence_length=None):
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    mask = keras.Input((None,), dtype="bool", name="padding_mask")
    x = keras.layers.Embedding(VOCABULARY, 8)(ids)
    if max_sequence_length is not None:
        from keras_transformer.positions import Learned

        x = Learned(max_sequence_length)(x)
    x = x * keras.ops.expand_dims(keras.ops.cast(mask, x.dtype), -1)
    return keras.Model({"token_ids": ids, "padding_mask": mask}, keras.layers.Dense(4)(x))


@pytest.mark.parametrize(("table", "longest"), [(None, 131), (40, 40), (12, 12)])
def test_probes_reach_the_longest_sequence_and_pad_both_sides(table, longest):
    probes = functional_spec(tagger(table)).signatures["serve"].probes
    assert all(probe.outputs for probe in probes)
    masks = [probe.inputs["padding_mask"] for probe in probes]
    assert max(mask.shape[1] for mask in masks) == longest
    assert {len(mask) for mask in masks} == {1, 5}
    rows = [row for mask in masks for row in mask]
    assert any(row.all() for row in rows)
    assert any(row[0] and not row[-1] for row in rows), "none is padded on the right"
    assert any(row[-1] and not row[0] for row in rows), "none is padded on the left"
    if longest > 17:
        (long,) = (mask[0] for mask in masks if mask.shape[1] == longest)
        # A mask is read late in a long text as well, and the last position is seen.
        np.testing.assert_array_equal(np.flatnonzero(~long), np.arange(3 * longest // 4, 7 * longest // 8))


def test_every_probe_has_the_ends_of_the_vocabulary():
    for probe in functional_spec(tagger()).signatures["serve"].probes:
        assert {0, VOCABULARY - 1} <= set(probe.inputs["token_ids"].ravel())


@pytest.mark.slow
@pytest.mark.parametrize(("most", "longest"), [(None, 131), (24, 24)])
def test_steps_reach_the_longest_prompt_and_the_last_slot(most, longest):
    options = {"position": "rotary"} if most is None else {"max_sequence_length": most}
    make = LanguageSignatures(tasks.LanguageModel(models.Decoder(SIZE, VOCABULARY, **options)))
    prefill, decode, one = (
        [probe.inputs for probe in each.probes] for each in (make.prefill(), make.decode(), make.decode_token())
    )
    assert max(inputs["token_ids"].shape[1] for inputs in prefill) == longest
    assert any(len(set(inputs["lengths"])) > 1 for inputs in prefill)
    slots = longest + 5 if most is None else most
    for probes in (decode, one):
        assert any(inputs["cache_index"][0] == slots - 1 == _slots(inputs) - 1 for inputs in probes)
        assert any(len(set(inputs["cache_index"])) > 1 for inputs in probes)
    many = max(inputs["token_ids"].shape[1] for inputs in decode)
    assert many == (67 if most is None else 3)
    for inputs in (*prefill, *decode):
        assert VOCABULARY - 1 in inputs["token_ids"]


def _slots(inputs):
    return next(each.shape[2] for name, each in inputs.items() if name.endswith("key"))


@pytest.mark.slow
def test_long_sources_are_encoded_and_read_by_steps():
    model = tasks.LanguageModel(models.Transformer(SIZE, VOCABULARY))
    make = LanguageSignatures(model)
    encode, decode = ([probe.inputs for probe in each.probes] for each in (make.encode(), make.decode()))
    ids, mask = model.source_names
    assert max(inputs[ids].shape[1] for inputs in encode) == 131
    rows = [row for inputs in encode for row in inputs[mask]]
    assert any(row[0] and not row[-1] for row in rows), "none is padded on the right"
    assert any(row[-1] and not row[0] for row in rows), "none is padded on the left"
    memory = {each.shape for inputs in decode for name, each in inputs.items() if each.ndim == 2 and "mask" in name}
    assert {shape[1] for shape in memory} == {5, 131}


def test_a_bundle_does_not_state_what_it_is_held_to():
    manifest = Manifest({}, {"onnx": ArtifactRecord({}, size=0, tolerance=1.0)}, tolerance=1.0)
    limit = verify.kept_limit(manifest, "onnx")
    assert (limit.tolerance, limit.ceiling, limit.is_quantized) == (None, 1e-3, False)
    assert (CEILING, UNMEASURED) == (1e-3, 1e-5)


class Files:
    """A double of files: what they compute for each signature."""

    def __init__(self, monkeypatch, **functions):
        monkeypatch.setattr(outputs, "opened", lambda directory, manifest, format, name: functions[name])

    def parity(self, probes):
        return outputs.verify_format(None, "onnx", probes, None, Manifest({}, {}, tolerance=1.0))


def probe(value):
    x = np.full((1, 16), value, "float32")
    outputs = {"y": 2 * x, "z": 3 * x}
    return Probe({"x": x}, f"value={value}", outputs, {name: np.full((1, 1), 1e-7, "float32") for name in outputs})


def double(inputs):
    return {"y": 2 * inputs["x"], "z": 3 * inputs["x"]}


def test_every_output_of_every_probe_of_every_signature_is_compared_with_the_reference(monkeypatch):
    probes = {"first": [probe(1.0), probe(5.0)], "second": [probe(1.0)]}
    found = Files(monkeypatch, first=double, second=double).parity(probes)
    assert {(each.signature, each.output) for each in found} == {
        (signature, output) for signature in probes for output in "yz"
    }
    slightly = np.float32(1 + 2e-6)
    late = lambda inputs: {name: y * slightly if inputs["x"].max() > 4 else y for name, y in double(inputs).items()}  # noqa: E731
    other = lambda inputs: double(inputs) | {"z": 3 * inputs["x"] * slightly}  # noqa: E731
    for functions, words in (
        ({"first": late, "second": double}, r"output 'y' .*value=5\.0"),
        ({"first": other, "second": double}, r"output 'z' .*value=1\.0"),
        ({"first": double, "second": other}, r"output 'z' .*value=1\.0"),
    ):
        with pytest.raises(ParityError, match=words):
            Files(monkeypatch, **functions).parity(probes)


@pytest.fixture
def dense():
    x = keras.Input((16,), name="x")
    return keras.Model(x, {"y": keras.layers.Dense(16, name="dense")(x)})


def test_an_export_measures_rounding_and_holds_the_file_to_it(dense, monkeypatch, tmp_path):
    from keras_transformer.export.saved_model.runtime import SavedModelRuntime

    report = export(dense, tmp_path / "bundle", formats=["saved_model"])
    assert report["saved_model"].share <= 1
    for each in read_probes(tmp_path / "bundle")["serve"]:
        # A sum of 16 products is rounded twice: it moves by a few units of 2**-23.
        assert 0 < each.rounding["y"].max() < 8 * 2.0**-23 * np.abs(each.outputs["y"]).max()
    run = SavedModelRuntime.__call__
    wrong = lambda *args: {name: each * np.float32(1 + 8e-6) for name, each in run(*args).items()}  # noqa: E731
    monkeypatch.setattr(SavedModelRuntime, "__call__", wrong)
    with pytest.raises(ParityError, match="saved_model: output 'y' differs from Keras"):
        export(dense, tmp_path / "other", formats=["saved_model"])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("format", ["saved_model", "onnx"])
def test_an_export_compares_the_weights(dense, monkeypatch, tmp_path, format):
    from keras_transformer.export.formats import FORMATS

    read = type(FORMATS[format]).stored_weights

    def changed(self, *args):
        for stored in read(self, *args):
            # One bit of one number, which no output shows.
            values = stored.values.copy()
            values.reshape(-1)[3:4] = np.nextafter(values.reshape(-1)[3:4], np.float32(9))
            yield dataclasses.replace(stored, values=values)

    monkeypatch.setattr(type(FORMATS[format]), "stored_weights", changed)
    with pytest.raises(WeightError, match="dense"):
        export(dense, tmp_path / "bundle", formats=[format])
    assert not (tmp_path / "bundle").exists()


def test_the_memory_of_recordings_is_as_long_as_they_are():
    """A frame has hundreds of samples: two lengths of a few samples would give one frame each."""
    moonshine = models.Moonshine(models.Size(1, 8, 2, 8), VOCABULARY)
    make = LanguageSignatures(tasks.LanguageModel(moonshine, start_id=1, end_id=2))
    specs = [spec for spec in make.decode().inputs if "cross" in spec.name]
    assert [spec.axes for spec in specs] == 2 * [("batch", None, "source_length", None)]
