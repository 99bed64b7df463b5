"""A TFLite file as C++: `model.cc` with its bytes, and `model.h` with what a program needs to run it."""

from __future__ import annotations

import json
import math
import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.export.targets.microcontrollers.operators import method_of
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.runtime import IntegerStep
from keras_transformer.export.tflite.tree import read, shape_of, write

HEADER, SOURCE = "model.h", "model.cc"
_IN_LINE = 16
_BYTES = re.compile(r"0x([0-9a-f]{2})")
_CUSTOM = "CUSTOM"
_HEADER = """\
// Written by keras_transformer of a TFLite file for microcontrollers, beside model.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"

namespace model {{

// The TFLite file.
extern const unsigned char kData[];
extern const std::size_t kSize;

// Bytes of the tensor arena{arena_note}.
constexpr std::size_t kArenaSize = {arena};

// An input or output. A number is (code - zero_point) * scale; the scale is 0 where numbers are stored as they are.
struct Tensor {{
  const char* name;
  std::size_t count;
  float scale;
  int zero_point;
}};

constexpr Tensor kInputs[] = {{
{inputs}
}};

constexpr Tensor kOutputs[] = {{
{outputs}
}};

using Resolver = tflite::MicroMutableOpResolver<{count}>;

// Registers the operators of the file, and no others.
inline TfLiteStatus AddOperators(Resolver& resolver) {{
{methods}
  return kTfLiteOk;
}}

}}  // namespace model
"""
_SOURCE = """\
#include "model.h"

namespace model {{

alignas(16) const unsigned char kData[] = {{
{data}
}};

const std::size_t kSize = sizeof(kData);

}}  // namespace model
"""
Steps = Mapping[str, IntegerStep]


def write_sources(
    folder: pathlib.Path, content: bytes, ends: tuple[Steps, Steps], arena_bytes: int, arena_note: str
) -> None:
    """Writes `model.h` and `model.cc` into a folder.

    Args:
        folder: `pathlib.Path`.
        content: bytes of a .tflite file of one signature, as `compacted` returns it.
        ends: `(inputs, outputs)`: dicts of name to `IntegerStep`, of scale 0 for what is not quantized.
        arena_bytes: int: bytes of the tensor arena.
        arena_note: how they were found, as the rest of a sentence.
    """
    folder.mkdir(parents=True, exist_ok=True)
    methods = resolver_methods(content)
    inputs, outputs = ("\n".join(_tensors(content, side, steps)) for side, steps in zip(_SIDES, ends, strict=True))
    text = _HEADER.format(
        arena=arena_bytes,
        arena_note=arena_note,
        inputs=inputs,
        outputs=outputs,
        count=len(methods),
        methods="\n".join(f"  if (resolver.{each}() != kTfLiteOk) return kTfLiteError;" for each in methods),
    )
    (folder / HEADER).write_text(text, encoding="utf-8")
    (folder / SOURCE).write_text(_SOURCE.format(data="\n".join(_lines(content))), encoding="utf-8")


def compacted(content: bytes) -> bytes:
    """A copy of a file without what no kernel reads: names of tensors, metadata, scales of biases, equal zero points.

    Args:
        content: bytes of a .tflite file.
    """
    model = read(content)
    model.metadata = model.description = None
    for graph in graphs(model):
        for index, tensor in enumerate(graph.tensors):
            tensor.name, parameters = None, tensor.quantization
            if parameters is None or parameters.scale is None or parameters.zeroPoint is None:
                continue
            if graph.type(index) == "INT32" and graph.is_constant(index):
                tensor.quantization = None
            elif len(set(parameters.zeroPoint)) == 1:
                parameters.zeroPoint = parameters.zeroPoint[:1]
    return write(model)


def array_of(folder: pathlib.Path) -> bytes:
    """The bytes of the file in `model.cc` of a folder."""
    text = (folder / SOURCE).read_text(encoding="utf-8")
    return bytes.fromhex("".join(_BYTES.findall(text)))


def resolver_methods(content: bytes) -> list[str]:
    """The methods of `MicroMutableOpResolver` that register the operators of a file, each once.

    Args:
        content: bytes of a .tflite file of operators that all have one; a custom one is that of an Ethos-U.
    """
    kinds = {graph.kind(each) for graph in graphs(read(content)) for each in graph.subgraph.operators}
    return sorted("AddEthosU" if kind == _CUSTOM else str(method_of(kind)) for kind in kinds)


_SIDES = ("inputs", "outputs")


def _tensors(content: bytes, side: str, steps: Steps) -> list[str]:
    """A line of C++ for each input or output, in the order of the graph."""
    model = read(content)
    (signature,) = model.signatureDefs
    graph = model.subgraphs[signature.subgraphIndex]
    # An input that is an output too has a name of each.
    known = {each.name.decode(): int(each.tensorIndex) for each in getattr(signature, side)}
    names = {index: name for name, index in known.items() if name in steps}
    lines = []
    for index in map(int, getattr(graph, side)):
        name, shape = names[index], shape_of(graph.tensors[index])
        step = steps[name]
        scale = f"{np.format_float_scientific(np.float32(step.scale), unique=True)}f" if step.scale else "0.0f"
        fields = f"{json.dumps(name)}, {math.prod(shape)}, {scale}, {step.zero}"
        lines.append(f"    {{{fields}}},  // {step.dtype} {shape}")
    return lines


def _lines(content: bytes) -> Sequence[str]:
    starts = range(0, len(content), _IN_LINE)
    return ["    " + "".join(f"0x{byte:02x}," for byte in content[each : each + _IN_LINE]) for each in starts]
