"""One input of a signature as code: zeros, or ones for a mask, in the types of numpy, ONNX Runtime and LiteRT."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_transformer.export.data.array_spec import ArraySpec

_PYTHON = frozenset({"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"})
# Sizes of dynamic axes that most models take, if those of images are not known.
_SIZES = {"length": 16}
_OTHER_SIZE = 224
_JAVASCRIPT = {"float32": "Float32Array", "int32": "Int32Array", "int64": "BigInt64Array", "bool": "Uint8Array"}
_JAVASCRIPT |= {"float64": "Float64Array", "int8": "Int8Array", "uint8": "Uint8Array"}
_KOTLIN = {
    "float32": ("FloatBuffer", "FloatArray"),
    "int32": ("IntBuffer", "IntArray"),
    "int64": ("LongBuffer", "LongArray"),
}
_LITERT = {
    "float32": ("writeFloat", "FloatArray"),
    "int32": ("writeInt", "IntArray"),
    "int8": ("writeInt8", "ByteArray"),
}
_LITERT |= {"bool": ("writeBoolean", "BooleanArray")}
# Names that the code uses, and words of the languages.
_TAKEN = {
    *("model", "outputs", "output", "session", "environment", "values", "result", "load", "np", "ort"),
    *(
        "function",
        "val",
        "var",
        "let",
        "const",
        "in",
        "is",
        "new",
        "this",
        "fun",
        "object",
        "when",
        "default",
        "typeof",
    ),
    *("delete", "void"),
}


class ArrayCode(NamedTuple):
    """Code that makes one input.

    Args:
        name: name in the manifest.
        file_name: name in the file.
        dtype: numpy dtype name.
        variable: name that is an identifier in every language.
        sizes: a valid size by identifier of each dynamic axis other than the batch.
        python: expression of a numpy array, or None where only `RuntimeModel.example` knows a valid one.
        javascript: expression of a tensor of onnxruntime-web, or None for a dtype that it does not have.
        onnx_kotlin: expression of a tensor of ONNX Runtime, or None.
        litert: call on a buffer of LiteRT, or None.
    """

    name: str
    file_name: str
    dtype: str
    variable: str
    sizes: Mapping[str, int]
    python: str | None
    javascript: str | None
    onnx_kotlin: str | None
    litert: str | None


def array_codes(
    specs: Sequence[ArraySpec], file_names: Mapping[str, str], limits: Mapping[str, int]
) -> list[ArrayCode]:
    """Returns the code of the inputs of a signature.

    Args:
        specs: `ArraySpec` of the inputs.
        file_names: name in the file by name; a missing one is the same.
        limits: the largest size of dynamic axes by name.
    """
    variables = {identifier(each.name) for each in specs}
    codes = []
    for spec in specs:
        dims, sizes = [], {}
        for axis, size in zip(spec.axes, spec.shape, strict=True):
            if axis is None or axis == "batch":
                dims.append(str(1 if size is None else size))
                continue
            name = identifier(axis)
            dims.append(f"{name}_size" if name in variables else name)
            usual = _SIZES.get(axis, _OTHER_SIZE)
            sizes[dims[-1]] = min(usual, limits.get(axis, usual))
        codes.append(_array_code(spec, file_names.get(spec.name, spec.name), dims, sizes))
    return codes


def _array_code(spec: ArraySpec, file_name: str, dims: list[str], sizes: dict[str, int]) -> ArrayCode:
    dtype, shape = spec.dtype, ", ".join(dims)
    # Patches of images divide their sizes in ways that only the model knows: `example` does.
    is_known = dtype in _PYTHON and _OTHER_SIZE not in sizes.values()
    zeros = f'np.{"ones" if dtype == "bool" else "zeros"}(({shape}{"," if len(dims) == 1 else ""}), "{dtype}")'
    return ArrayCode(
        name=spec.name,
        file_name=file_name,
        dtype=dtype,
        variable=identifier(spec.name),
        sizes=sizes,
        python=zeros if is_known else None,
        javascript=_javascript(dtype, dims),
        onnx_kotlin=_onnx_kotlin(dtype, dims),
        litert=_litert(dtype, dims),
    )


def identifier(name: str) -> str:
    """A name as an identifier of Python, Kotlin and JavaScript.

    Example:

    >>> identifier("token ids:0"), identifier("in"), identifier("3d")
    ('token_ids_0', 'in_', '_3d')
    """
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    text = f"_{text}" if not text or text[0].isdigit() else text
    return f"{text}_" if keyword.iskeyword(text) or text in _TAKEN else text


def _count(dims: Sequence[str]) -> str:
    """The number of elements: a product, whose known factors are multiplied."""
    known, names = 1, []
    for each in dims:
        if each.isdecimal():
            known *= int(each)
        else:
            names.append(each)
    return " * ".join([*([str(known)] if known != 1 or not names else []), *names])


def _javascript(dtype: str, dims: Sequence[str]) -> str | None:
    if dtype not in _JAVASCRIPT:
        return None
    fill = ".fill(1)" if dtype == "bool" else ""
    return f'new ort.Tensor("{dtype}", new {_JAVASCRIPT[dtype]}({_count(dims)}){fill}, [{", ".join(dims)}])'


def _onnx_kotlin(dtype: str, dims: Sequence[str]) -> str | None:
    shape = ", ".join(each if each.isdecimal() else f"{each}.toLong()" for each in dims)
    if dtype == "bool":
        mask = f"ByteBuffer.wrap(ByteArray({_count(dims)}) {{ 1 }})"
        return f"OnnxTensor.createTensor(environment, {mask}, longArrayOf({shape}), OnnxJavaType.BOOL)"
    if dtype not in _KOTLIN:
        return None
    buffer, array = _KOTLIN[dtype]
    return f"OnnxTensor.createTensor(environment, {buffer}.wrap({array}({_count(dims)})), longArrayOf({shape}))"


def _litert(dtype: str, dims: Sequence[str]) -> str | None:
    if dtype not in _LITERT:
        return None
    method, array = _LITERT[dtype]
    return f"{method}({array}({_count(dims)}){' { true }' if dtype == 'bool' else ''})"
