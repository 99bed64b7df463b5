"""What libraries and damaged files raise, what follows a failure, and the line of an error that names its cause."""

from __future__ import annotations

import contextlib
import re
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping

from keras_transformer.utils.types import JsonObject

# Readers of zip archives, arrays, JSON and flatbuffers, on content that is damaged or hostile. The header of an array of
# numpy is Python, which may be no syntax or end within a token.
FILE_ERRORS: tuple[type[Exception], ...] = (
    *(ArithmeticError, AttributeError, BufferError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(StopIteration, SyntaxError, TypeError, ValueError),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
# Their exceptions derive from `Exception` alone. Those of ONNX Runtime have no common base.
_MODULES = (
    "google.protobuf.message",
    "httpx",
    "httpx2",
    "jinja2.exceptions",
    "onnx.checker",
    "onnx.shape_inference",
    "onnxruntime.capi.onnxruntime_pybind11_state",
    "onnxruntime_genai.onnxruntime_genai",
    "tensorflow.lite.python.convert_phase",
    "tensorflow.python.framework.errors_impl",
)
# Keras puts the message in bold, between the layer and its arguments.
_OF_LAYER = re.compile(r"Exception encountered when calling (.+?)\.\s+\x1b\[1m(.*?)\x1b\[0m", re.DOTALL)
# And below the config of a whole model that cannot be loaded.
_OF_CONFIG = "Exception encountered: "
# And below what it says of shapes that it cannot infer, whatever the reason.
_OF_INFERENCE = "Error encountered: "
# TensorFlow begins with the place, and ends with the cause and the name of the node.
_TRACING, _EXECUTION = "in user code:", "Graph execution error:"
_FUNCTION, _NODE = re.compile(r"\{\{function_node [^}]*\}\} "), ("[[{{node ", "[Op:")
# The last frame of a place: a line with the file, and one with the code.
_FRAMES = re.compile(r".*^ *File [^\n]*\n[^\n]*\n", re.DOTALL | re.MULTILINE)
# What TensorFlow advises where a tensor is used as a bool; it is not about exports.
_ADVICE = " You can attempt the following resolutions"


def library_exceptions(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Returns the classes of what Keras, its backend, a converter or a runtime raises for a model, a file or a value.

    Of libraries that are not loaded there are none: nothing is imported.

    Args:
        others: further classes.

    Example:

    >>> import io, zipfile
    >>> try:
    ...     archive = zipfile.ZipFile(io.BytesIO(b"no archive"))
    ... except library_exceptions() as error:
    ...     print(one_line(error))
    File is not a zip file
    """
    loaded = (list(vars(sys.modules[name]).values()) for name in _MODULES if name in sys.modules)
    own = (each for values in loaded for each in values if isinstance(each, type) and issubclass(each, Exception))
    return (*FILE_ERRORS, AssertionError, SystemError, *own, *others)


@contextlib.contextmanager
def on_failure(undo: Callable[..., object], *arguments: object) -> Iterator[None]:
    """Context that calls a function if its block raises or is interrupted.

    Args:
        undo: what is called, before the exception goes on.
        arguments: its arguments.

    Example:

    >>> import contextlib
    >>> with contextlib.suppress(KeyError), on_failure(print, "undone"):
    ...     raise KeyError
    undone
    """
    with contextlib.ExitStack() as stack:
        stack.callback(undo, *arguments)
        yield
        stack.pop_all()


@contextlib.contextmanager
def failure_to(handle: Callable[[BaseException], object]) -> Iterator[None]:
    """Context of a thread that outlives the failures of what it runs: they are handed to a function, and end there.

    Args:
        handle: takes the exception. Interrupts and exits of the process are none.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Samplers and tokenizers of users run here, and a panic in Rust is no `Exception`.
        handle(error)


def revived(record: JsonObject, base: type[Exception], names: Mapping[str, object]) -> Exception:
    """An error of another process, as an object of its class.

    Args:
        record: dict with "class", "message" and "state", the attributes of the error.
        base: the class of the error, where there is none of that name among `names`.
        names: dict of name to class.
    """
    cls = names.get(record["class"])
    kind = cls if isinstance(cls, type) and issubclass(cls, base) else base
    error = kind.__new__(kind)
    error.args = (record["message"],)
    vars(error).update(record["state"])
    return error


def one_line(reason: object, limit: int = 300) -> str:
    """The cause that an exception or text names, in one line that is cut to `limit` characters; else the class.

    That is the first line with content. Below a line that only says where the error occurred, as Keras and TensorFlow write
    it, it is all of what they say of the cause.

    Example:

    >>> one_line("Exception encountered when calling Dense.call().\\n\\n\\x1b[1mIt fails.\\x1b[0m\\n\\nArguments received")
    'Dense.call(): It fails.'
    >>> one_line("in user code:\\n\\n    File 'model.py', line 3\\n        x = f(y)\\n\\n    ValueError: It fails.\\n")
    'ValueError: It fails.'
    """
    text = _cause(str(reason)) or type(reason).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _cause(text: str) -> str:
    """The cause in one line, or ""."""
    if match := _OF_LAYER.search(text):
        inner = _cause(match[2]) if match[2].lstrip().startswith((_TRACING, _EXECUTION)) else " ".join(_lines(match[2]))
        return f"{match[1]}: {inner.partition(_ADVICE)[0].rpartition(_OF_INFERENCE)[2]}"
    if _OF_CONFIG in text:
        return _cause(text.rpartition(_OF_CONFIG)[2])
    lines = _lines(text)
    if lines and lines[0] == _TRACING:
        return " ".join(_lines(_FRAMES.sub("", text))).removeprefix(f"{_TRACING} ").partition(_ADVICE)[0]
    if lines and lines[0] == _EXECUTION:
        return lines[-1]
    return lines[0] if lines else ""


def _lines(text: str) -> list[str]:
    """The lines with content, but for those that name a node."""
    lines = [line.strip() for line in _FUNCTION.sub("", text).splitlines()]
    return [line for line in lines if line and not line.startswith(_NODE)]
