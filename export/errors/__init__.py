"""The errors of exporting, verifying and running bundles."""

from keras_transformer.export.errors.arguments import (
    InvalidBundleError,
    InvalidModelError,
    MissingLibraryError,
    NotDeterministicError,
    OptionsError,
    QuantizationError,
    TargetError,
    UnknownFormatError,
    UnknownTargetError,
)
from keras_transformer.export.errors.base import ExportError
from keras_transformer.export.errors.files import (
    ConversionError,
    InputError,
    OutOfSpaceError,
    ParityError,
    RunError,
    UnknownInputError,
    UnsupportedOpError,
    WeightError,
)

__all__ = [
    "ConversionError",
    "ExportError",
    "InputError",
    "InvalidBundleError",
    "InvalidModelError",
    "MissingLibraryError",
    "NotDeterministicError",
    "OptionsError",
    "OutOfSpaceError",
    "ParityError",
    "QuantizationError",
    "RunError",
    "TargetError",
    "UnknownFormatError",
    "UnknownInputError",
    "UnknownTargetError",
    "UnsupportedOpError",
    "WeightError",
]
