"""Writes and verifies bundles that train on the device."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.metadata import check_metadata
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import FileNames, SignatureRecord
from keras_transformer.export.errors import ParityError
from keras_transformer.export.reporting.progress import Progress
from keras_transformer.export.runtime.libraries import TFLITE, require_keras
from keras_transformer.utils.types import ArrayLike, JsonObject, Path, Tensor, Tensors

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.data.report import Report
    from keras_transformer.export.training.spec import TrainingSpec

# Steps that the file and Keras train, and how far their losses may be apart, as a share of the first.
_STEPS, _TOLERANCE = 20, 1e-4


def export_training(
    model: keras.Model,
    directory: Path,
    batch: tuple[Tensors, ArrayLike],
    *,
    loss: str | Callable[..., Tensor] | None = None,
    optimizer: str | keras.optimizers.Optimizer | None = None,
    metadata: JsonObject | None = None,
    progress: Progress = True,
) -> Report:
    """Writes a TFLite file that trains a model on the device, and verifies it in LiteRT.

    The file has the signatures `train` (a step on one batch: returns the loss), `infer`, `save` and `restore`, of built-in
    operators only. What trains is what is trainable in Keras: the head after `backbone.trainable = False`, or the adapters
    after `training.add_lora`. The other weights are constants. Gradients and one step of the optimizer are compared with
    those of Keras as an export is, by what rounding explains; then the file and Keras train for 20 steps side by side.

    Args:
        model: Functional or Sequential `keras.Model` with one output, in float32, on TensorFlow. It is not changed.
        directory: path of the bundle to write. An existing bundle is replaced; anything else is kept, and an error.
        batch: `(x, y)` as `fit` takes it: the shapes and types of the batches of `train`, and the data of the comparison.
        loss: loss as `compile` takes it; that of the compiled model when None.
        optimizer: optimizer as `compile` takes it; that of the compiled model when None, with its settings, not its state.
        metadata: dict to keep in the manifest; JSON values only.
        progress: see `export`.

    Returns:
        A `Report`.

    Raises:
        InvalidModelError: the model is not functional, has several outputs, nothing that trains or no loss, or the batch
            does not fit it.
        UnsupportedOpError: a gradient needs an operator that TFLite lacks, such as that of a convolution's kernel; names it.
        ParityError: the file trains differently.
        InvalidBundleError: the directory contains something that is not a bundle.

    Deviations from `fit`: dropout is off, batch normalization uses and keeps its moving averages, and metrics and weights of
    classes or samples are not part of the file.

    Example:

    >>> import keras
    >>> from keras_transformer.export import OnDeviceTrainer
    >>> backbone = keras.layers.Dense(8, "gelu", trainable=False, name="backbone")
    >>> head = keras.layers.Dense(3, name="head")
    >>> model = keras.Sequential([keras.Input((4,), name="x"), backbone, head], name="classifier")
    >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> x, y = np.random.default_rng(0).normal(size=(16, 4)).astype("float32"), np.arange(16) % 3
    >>> report = export_training(model, "/tmp/keras_transformer_doctest", (x, y), progress=False)
    >>> OnDeviceTrainer("/tmp/keras_transformer_doctest").weights
    ['classifier/head/kernel', 'classifier/head/bias']
    """
    from keras_transformer.export.training.spec import TrainingSpec
    from keras_transformer.export.writing.bundle_writer import export_spec
    from keras_transformer.export.writing.float_files import complete

    require_keras("export_training")
    check_metadata(metadata)
    target = writing.check_target(directory)
    made = TrainingSpec(model, batch, loss, optimizer)
    with writing.replacing(target) as folder, tempfile.TemporaryDirectory() as work:
        source = pathlib.Path(work, target.name)
        spec = dataclasses.replace(made.spec, metadata=made.spec.metadata if metadata is None else metadata)
        report = export_spec(spec, source, [TFLITE], progress=progress)
        manifest = _with_state(made, source, folder)
        complete(folder, manifest, target.name)
        training = {**(manifest.training or {}), "loss_difference": _check_training(made, folder)}
        complete(folder, dataclasses.replace(manifest, training=training), target.name)
    record = manifest.artifact(TFLITE)
    artifact = dataclasses.replace(report.artifacts[TFLITE], path=str(target / record.paths[0]), size=record.size)
    return dataclasses.replace(report, directory=str(target), artifacts={TFLITE: artifact})


def _with_state(made: TrainingSpec, source: pathlib.Path, folder: pathlib.Path) -> Manifest:
    """Writes the file whose state is in variables, from the verified one; returns the manifest."""
    from keras_transformer.export.tflite.passes.variables import keep_state
    from keras_transformer.export.tflite.tree import read_file, write_file

    manifest = read_manifest(source)
    record = manifest.artifact(TFLITE)
    name = record.signatures["infer"]
    tree = read_file(source / name)
    keep_state(tree, made.first_values, made.variable_names)
    write_file(tree, folder / name)
    probes = [dataclasses.replace(each, inputs=made.without_state(each.inputs)) for each in made.infer.probes]
    write_probes(folder, {"infer": probes})
    parity = {key: [each for each in record.parity or () if each.signature == key] for key in ("train", "infer")}
    record = dataclasses.replace(
        record,
        signatures={"infer": name},
        size=(folder / name).stat().st_size,
        names={"infer": FileNames(*map(made.without_state, record.names["infer"]))},
        milliseconds={key: each for key, each in (record.milliseconds or {}).items() if key != "train"},
        parity=tuple(parity["infer"]),
    )
    signatures = {key: _stateless(made, each) for key, each in manifest.signatures.items()}
    trained = {key: each.to_dict() for key, each in signatures.items()}
    return dataclasses.replace(
        manifest.with_artifact(TFLITE, record),
        signatures={"infer": signatures["infer"]},
        training={**made.record(trained), "parity": [each.to_dict() for each in parity["train"]]},
    )


def _stateless(made: TrainingSpec, signature: SignatureRecord) -> SignatureRecord:
    """The record of a signature without the state."""
    return SignatureRecord(
        *(tuple(each for each in side if each.name not in made.variable_names) for side in signature)
    )


def _check_training(made: TrainingSpec, folder: pathlib.Path) -> float:
    """Trains in LiteRT and in Keras; returns the largest difference of the losses, as a share of the first.

    Raises:
        ParityError: they differ.
    """
    from keras_transformer.export.training.trainer import OnDeviceTrainer

    trainer = OnDeviceTrainer(folder)
    found = [trainer.train(made.inputs, made.labels) for _ in range(_STEPS)]
    expected = made.losses(_STEPS)
    difference = _largest(found, expected)
    if not difference <= _TOLERANCE:
        scale = abs(expected[0])
        raise ParityError(TFLITE, "loss", f"{_STEPS} training steps", difference * scale, scale, _TOLERANCE)
    return difference


def _largest(found: Sequence[float], expected: Sequence[float]) -> float:
    difference = np.abs(np.array(found) - np.array(expected)).max() / max(abs(expected[0]), 1e-6)
    return float(difference)
