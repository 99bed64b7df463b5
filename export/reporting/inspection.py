"""The description of a bundle as text: signatures, sizes, versions and the ops of each format."""

import collections
import pathlib
from collections.abc import Iterator

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.tables import Part, Table, plain
from keras_transformer.export.data.target_result import TargetResult
from keras_transformer.export.formats import get_format
from keras_transformer.utils.types import JsonObject, Path


def inspect_bundle(directory: Path) -> str:
    """Returns a description of a bundle.

    Args:
        directory: path of the bundle.

    Returns:
        Several lines of text.

    Raises:
        InvalidBundleError: it is not a complete bundle.
    """
    return plain(inspected(directory))


def inspected(directory: Path) -> list[Part]:
    """Returns the parts of the description of a bundle: see `inspect_bundle`."""
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory)
    lines: list[Part] = []
    for name, signature in manifest.signatures.items():
        lines.append(f"signature {name}")
        for side, specs in signature._asdict().items():
            lines += [f"  {side[:-1]:7}{each.name}: {each.describe()}" for each in specs]
    lines += ["", _artifact_table(directory, manifest), ""]
    lines += _inspected_files(directory, manifest)
    lines += [] if manifest.target is None else [str(TargetResult.from_dict(manifest.target)), ""]
    lines.append("written with " + ", ".join(f"{name} {version}" for name, version in manifest.versions.items()))
    lines += [f"metadata {key}: {_short(value)}" for key, value in manifest.metadata.items()]
    return lines


def record_of(directory: Path) -> JsonObject:
    """Returns the contents of a bundle as dicts, lists and numbers: what `inspect --json` prints.

    Args:
        directory: path of the bundle.

    Raises:
        InvalidBundleError: it is not a complete bundle.
    """
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory)
    artifacts: JsonObject = {}
    for name, artifact in manifest.artifacts.items():
        try:
            counts: JsonObject | None = dict(op_counts(directory, manifest, name))
        except ImportError:  # What reads such files is not installed.
            counts = None
        artifacts[name] = {
            "files": sorted(artifact.paths),
            "size": artifact.size,
            "of_scale": artifact.ratio,
            "quantization": artifact.quantization,
            "operations": counts,
        }
    signatures = {
        name: {side: [each.to_dict() for each in specs] for side, specs in found._asdict().items()}
        for name, found in manifest.signatures.items()
    }
    return {
        "directory": str(directory),
        "signatures": signatures,
        "artifacts": artifacts,
        "metadata": manifest.metadata,
        "versions": dict(manifest.versions),
    }


def op_counts(directory: Path, manifest: Manifest, format: str) -> collections.Counter[str]:
    """Counts the ops of one artifact, over all its signatures.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        format: name of a format that the bundle has.

    Returns:
        A `collections.Counter` of op name to count.
    """
    counter: collections.Counter[str] = collections.Counter()
    for path in sorted(manifest.artifact(format).paths):
        counter.update(get_format(format).count_operations(pathlib.Path(directory, path)))
    return counter


def _artifact_table(directory: pathlib.Path, manifest: Manifest) -> Table:
    rows = []
    for name, artifact in manifest.artifacts.items():
        rows.append(
            (
                name,
                artifact.quantization or "float32",
                readable_size(artifact.size),
                f"{artifact.ratio:.1e}",
                *_op_cells(directory, manifest, name),
            )
        )
    head = ("format", "weights", "size", "of scale", "ops", "most frequent ops")
    return Table(head, rows, texts=("format", "weights", "most frequent ops"))


def _op_cells(directory: pathlib.Path, manifest: Manifest, name: str) -> tuple[str, str]:
    """The number of ops and the most frequent ones, if the library that reads them is installed."""
    try:
        counter = op_counts(directory, manifest, name)
    except ImportError as error:
        return "-", f"counting them needs {error.name}"
    return str(counter.total()), ", ".join(f"{op} {count}" for op, count in counter.most_common(4))


def _inspected_files(directory: pathlib.Path, manifest: Manifest) -> Iterator[str]:
    """The descriptions of files by each format, with an empty line after each format."""
    for name, artifact in manifest.artifacts.items():
        paths = sorted(artifact.paths)
        lines = [line for path in paths for line in get_format(name).inspect(directory / path)]
        yield from [*lines, ""] if lines else []


def _short(value: object, limit: int = 80) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
