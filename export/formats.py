"""The file formats by name."""

from collections.abc import Iterable

from keras_transformer.export.errors import UnknownFormatError
from keras_transformer.export.format import Format
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.saved_model.format import SAVED_MODEL
from keras_transformer.export.tflite.format import TFLITE

# In the order in which they are written: a format follows the one that it is made from.
FORMATS: dict[str, Format] = {each.name: each for each in (SAVED_MODEL, TFLITE, ONNX)}
# Those that are made from the model.
DEFAULT_FORMATS = tuple(name for name, each in FORMATS.items() if each.made_from is None)

DEFAULT_BACKEND = ONNX.name


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
