"""The file formats by name."""

from collections.abc import Iterable

from keras_transformer.export.bundle.manifest import vocabulary_paths
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import UnknownFormatError
from keras_transformer.export.format import Format
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.openvino.format import OPENVINO_IR
from keras_transformer.export.runtime.libraries import installed_version
from keras_transformer.export.runtime.weight_folder import WeightFolder
from keras_transformer.export.saved_model.format import SAVED_MODEL
from keras_transformer.export.tflite.format import TFLITE
from keras_transformer.version import DISTRIBUTION, __version__

# In the order in which they are written: a format follows the one that it is made from.
FORMATS: dict[str, Format] = {each.name: each for each in (SAVED_MODEL, TFLITE, ONNX, OPENVINO_IR)}
# Those that are made from the model.
DEFAULT_FORMATS = tuple(name for name, each in FORMATS.items() if each.made_from is None)

# In the order in which a bundle's files are run where no backend is named.
BACKENDS = tuple(dict.fromkeys((*reversed(DEFAULT_FORMATS), *FORMATS)))


def written_versions(formats: Iterable[str] = ()) -> dict[str, str]:
    """Versions of this package and of the installed distributions that write or run bundles.

    Args:
        formats: names of the formats of the bundle; those that are made from the model need no name.
    """
    names = ["keras", "tensorflow", "numpy"]
    for name in dict.fromkeys([*DEFAULT_FORMATS, *formats]):
        names += [*FORMATS[name].writers, FORMATS[name].library.distribution]
    found = {name: installed_version(name) for name in dict.fromkeys(names)}
    return {DISTRIBUTION: __version__} | {name: version for name, version in found.items() if version is not None}


def check_formats(names: str | Iterable[str]) -> list[str]:
    """Names of formats in the order in which they are written, each once, with those that they are made from.

    Args:
        names: one name, or several.

    Raises:
        UnknownFormatError: a name is not a key of `FORMATS`, or there is none.
    """
    names = [names] if isinstance(names, str) else list(names)
    for name in names or [""]:
        source = get_format(name).made_from
        if source is not None:
            names.append(source)
    return [name for name in FORMATS if name in names]


def format_with(name: str, weights: WeightFolder | None) -> Format:
    """The format of a name, with a folder for packed weights where one is given.

    Raises:
        ExportError: its runtime writes no such files.
    """
    found = get_format(name)
    return found if weights is None else found.with_weight_folder(weights)


def chosen_backend(manifest: Manifest, backend: str | None = None) -> str:
    """The backend that is asked for, or the first of `BACKENDS` that a bundle has and whose runtime is installed.

    Where none is installed, it is the first that the bundle has, whose error says how to install the runtime.

    Args:
        manifest: of the bundle.
        backend: name of the backend, or None.

    Raises:
        UnknownFormatError: the name is not a key of `FORMATS`.
    """
    if backend is not None:
        return get_format(backend).name
    found = [name for name in BACKENDS if name in manifest.artifacts] or list(BACKENDS)
    return next((name for name in found if FORMATS[name].library.is_installed), found[0])


def get_format(name: str) -> Format:
    """The format of a name.

    Raises:
        UnknownFormatError: the name is not a key of `FORMATS`.
    """
    if name not in FORMATS:
        raise UnknownFormatError(name, FORMATS)
    return FORMATS[name]


def formats_with(attribute: str) -> tuple[str, ...]:
    """Names of the formats of which a boolean attribute is True.

    Args:
        attribute: such as `"takes_text"`; see `Format`.
    """
    return tuple(name for name, each in FORMATS.items() if getattr(each, attribute))


def files_of(manifest: Manifest, format: str) -> list[str]:
    """Names of the files that running one format reads: its own, its weights and the tokenizer."""
    own = set(manifest.files_of(format).values())
    others = {path for each in manifest.artifacts.values() for path in each.paths} - own
    own.update(vocabulary_paths(manifest, format))
    folders = own | (set() if manifest.tokenizer is None else {manifest.tokenizer.path})

    def is_read(name: str) -> bool:
        is_weights = get_format(format).is_weights_file(name) and name not in others
        return name in own or is_weights or any(name.startswith(f"{folder}/") for folder in folders)

    return [name for name in manifest.files if is_read(name)]
