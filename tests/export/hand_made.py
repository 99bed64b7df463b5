"""Bundles of files that are written by hand."""

import json

from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.data.manifest import PRODUCER, SCHEMA, Manifest


def spec(name, dtype, *shape):
    """An input or output in a manifest; `shape` has the sizes, and the names of axes of any size."""
    axes = [None if isinstance(size, int) else size for size in shape]
    return {
        "name": name,
        "dtype": dtype,
        "shape": [None if axis else size for axis, size in zip(axes, shape, strict=True)],
        "axes": axes,
    }


def bundle_of(directory, backend, content, inputs, outputs):
    """Writes a bundle of one file; `inputs` and `outputs` are dicts of name to `(dtype, shape)`; returns its path."""
    directory.mkdir()
    name = {"onnx": "model.onnx", "tflite": "model.tflite"}[backend]
    (directory / name).write_bytes(content)
    sides = {
        side: [
            {
                "name": each,
                "dtype": dtype,
                "shape": list(shape),
                "axes": [None if size is not None else f"{each}_{axis}" for axis, size in enumerate(shape)],
            }
            for each, (dtype, shape) in specs.items()
        ]
        for side, specs in (("inputs", inputs), ("outputs", outputs))
    }
    artifact = {"signatures": {"serve": name}, "bytes": len(content)}
    manifest = {"schema": 1, "producer": PRODUCER, "signatures": {"serve": sides}, "artifacts": {backend: artifact}}
    write_record(directory, manifest | {"tolerance": 1e-5, "versions": {}})
    return directory


def write_record(directory, record):
    """Writes the dict of a manifest, valid or not, with the records of the files that the directory has."""
    path = directory / "manifest.json"
    path.unlink(missing_ok=True)
    files = {name: each.to_dict() for name, each in file_records(directory).items()}
    path.write_text(json.dumps(record | {"files": files}))


def manifest_of(record):
    """The `Manifest` of a dict, which needs signatures and artifacts alone."""
    return Manifest.from_dict(
        {"schema": SCHEMA, "producer": PRODUCER, "tolerance": 1e-5, "versions": {}, "files": {}, **record}
    )
