"""Probes in a bundle: inputs and reference outputs, to verify it again, warm it up and time it."""

import math
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.bundle.manifest import PROBES
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import sizes_of
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.errors import InputError, InvalidBundleError
from keras_transformer.utils.errors import FILE_ERRORS, one_line
from keras_transformer.utils.types import Path

# An export keeps so much, or the smallest probe of each signature.
PROBE_BYTES = 16 * 2**20
# Uncompressed.
_MAX_BYTES = 2**30


def write_probes(directory: Path, probes: Mapping[str, Sequence[Probe]], limit: int = PROBE_BYTES) -> None:
    """Writes the probes, smallest first, up to `limit` bytes (at least one per signature), to `probes.npz`."""
    arrays: dict[str, np.ndarray] = {}
    used = 0
    for signature, cases in probes.items():
        for number, probe in enumerate(sorted(cases, key=_bytes)):
            used += _bytes(probe)
            if number and used > limit:
                break
            prefix = f"{signature}/{number}"
            arrays[f"{prefix}/label"] = np.array(probe.label)
            arrays.update({f"{prefix}/inputs/{name}": array for name, array in probe.inputs.items()})
            arrays.update({f"{prefix}/outputs/{name}": array for name, array in probe.outputs.items()})
            arrays.update({f"{prefix}/rounding/{name}": array for name, array in probe.rounding.items()})
    named: dict[str, Any] = arrays  # `savez_compressed` declares a keyword of another type.
    np.savez_compressed(pathlib.Path(directory, PROBES), **named)


def read_probes(directory: Path, signature: str | None = None) -> dict[str, list[Probe]]:
    """The probes of a bundle.

    Args:
        directory: path of the bundle.
        signature: name of the only signature to read, or None for all.

    Returns:
        Dict of signature name to a list of `Probe`.

    Raises:
        InvalidBundleError: they cannot be read, or are larger than any export writes.
    """
    found: dict[str, dict[int, Probe]] = {}
    try:
        with zipfile.ZipFile(pathlib.Path(directory, PROBES)) as file:
            entries = [entry for entry in file.infolist() if signature in (None, entry.filename.split("/")[0])]
            _check_sizes(entries)
            for entry in entries:
                key, number, side, *name = entry.filename.removesuffix(".npy").split("/")
                probe = found.setdefault(key, {}).setdefault(int(number), Probe({}, ""))
                array = _read_array(file, entry)
                if side == "label":
                    probe.label = str(array)
                else:
                    {"inputs": probe.inputs, "outputs": probe.outputs, "rounding": probe.rounding}[side][name[0]] = (
                        array
                    )
    except FILE_ERRORS as error:
        raise InvalidBundleError(f"'{PROBES}' cannot be read: {one_line(error)}") from error
    return {key: [probes[number] for number in sorted(probes)] for key, probes in found.items()}


def _check_sizes(entries: list[zipfile.ZipInfo]) -> None:
    """Checks the sizes in the zip's directory; `zipfile` reads no more than that from an entry."""
    total = sum(entry.file_size for entry in entries)
    if total > _MAX_BYTES:
        raise ValueError(f"it would decompress to {total} bytes")
    if len({entry.filename for entry in entries}) < len(entries):
        raise ValueError("it contains an array twice")


def _read_array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array; memory is allocated only if its shape agrees with the size of its entry."""
    with file.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[
            version
        ]
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            raise ValueError(f"'{entry.filename}' contains Python objects")
        if math.prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"'{entry.filename}' claims the shape {shape}")
    with file.open(entry) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def resized_inputs(inputs: Sequence[ArraySpec], probe: Probe, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The inputs of a probe with other sizes of their axes: repeated or cut, so that values stay valid.

    Args:
        inputs: tuple of `ArraySpec`.
        probe: a `Probe` of the signature.
        sizes: dict of axis name to size; other axes keep theirs.

    Returns:
        Dict of input name to array.

    Raises:
        InputError: no input has such an axis, or a size is not positive.
    """
    own = sizes_of(inputs, probe.inputs)
    for axis, size in sizes.items():
        if axis not in own:
            raise InputError(axis, f"one of the axes {', '.join(own) or '(none is dynamic)'}", "an unknown axis")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError(axis, "a size of 1 or more", repr(size))
    arrays = {}
    for spec in inputs:
        array = probe.inputs[spec.name]
        for index, name in enumerate(spec.axes):
            if name is not None and name in sizes:
                array = np.take(array, np.arange(sizes[name]) % array.shape[index], axis=index)
        arrays[spec.name] = array
    return arrays


def _bytes(probe: Probe) -> int:
    return sum(array.nbytes for array in (*probe.inputs.values(), *probe.outputs.values()))
