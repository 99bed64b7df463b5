"""The operators of onnxruntime-extensions that turn strings into bytes, and bytes into strings.

Its tokenizers differ from the models' own on some texts, so that only two of its operators are used: byte-level BPE without
merges, whose tokens are the bytes, and the decoder of the same.
"""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from keras_transformer.export.errors import MissingLibraryError
from keras_transformer.text.tokenizers.byte_pair import byte_alphabet
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import onnxruntime

DOMAIN = "ai.onnx.contrib"
# A token of `GPT2Tokenizer` of its own: it always knows this one.
SPECIAL, SPECIAL_ID = "<|endoftext|>", 256


def session(path: str) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime that knows the operators.

    Args:
        path: path of the file.

    Raises:
        MissingLibraryError: onnxruntime-extensions is not installed.
    """
    options = session_options()
    import onnxruntime

    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def session_options() -> onnxruntime.SessionOptions:
    """`SessionOptions` of ONNX Runtime with the library registered.

    Raises:
        MissingLibraryError: onnxruntime-extensions is not installed.
    """
    try:
        path = importlib.import_module("onnxruntime_extensions").get_library_path()
    except ImportError as error:
        raise MissingLibraryError("strings in an ONNX file", "onnxruntime-extensions", "strings") from error
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(path)
    options.log_severity_level = 4
    return options


def spelling(text: str, codes: str, mask: str) -> list[onnx.NodeProto]:
    """The nodes that spell strings as bytes.

    Args:
        text: name of the input, strings `(B,)`.
        codes: name of the output, int64 `(B, N)`: bytes, and `SPECIAL_ID` for `SPECIAL`.
        mask: name of the output, int64 `(B, N)`: 1 where a text has a byte.
    """
    vocabulary = json.dumps({character: value for value, character in sorted(_characters().items())})
    # It splits off the special token before bytes are looked up. Merges must not be empty.
    attributes = {"vocab": vocabulary, "merges": "#version: 0.2\n"}
    return [helper.make_node("GPT2Tokenizer", [text], [codes, mask], domain=DOMAIN, name="spelling", **attributes)]


def reading(values: str, lengths: str, text: str) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """The nodes and constants that read rows of bytes as strings.

    Args:
        values: name of the input, uint8 `(B, N)`.
        lengths: name of the input, int32 `(B,)`.
        text: name of the output, strings `(B,)`.
    """
    value, int64 = helper.make_tensor_value_info, TensorProto.INT64
    # The decoder takes one row at a time, and not an empty one: an added token without text stands at the end of each.
    nodes = [
        helper.make_node("Gather", ["read_values", "read_row"], ["read_own"], axis=0),
        helper.make_node("Gather", ["read_lengths", "read_row"], ["read_length"], axis=0),
        helper.make_node("Unsqueeze", ["read_length", "read_zero"], ["read_end"]),
        helper.make_node("Slice", ["read_own", "read_zero", "read_end"], ["read_cut"]),
        helper.make_node("Concat", ["read_cut", "read_last"], ["read_closed"], axis=0),
        helper.make_node("Unsqueeze", ["read_closed", "read_zero"], ["read_ids"]),
        helper.make_node("BpeDecoder", ["read_ids"], ["read_text"], domain=DOMAIN, name="reading", **_decoder()),
        helper.make_node("Identity", ["read_goes_on"], ["read_went_on"]),
    ]
    inputs = [value("read_row", int64, []), value("read_goes_on", TensorProto.BOOL, [])]
    outputs = [value("read_went_on", TensorProto.BOOL, []), value("read_text", TensorProto.STRING, [1])]
    body = helper.make_graph(nodes, "one_row", inputs, outputs)
    outer = [
        helper.make_node("Cast", [values], ["read_values"], to=int64),
        helper.make_node("Cast", [lengths], ["read_lengths"], to=int64),
        helper.make_node("Shape", ["read_lengths"], ["read_batch"]),
        helper.make_node("Squeeze", ["read_batch"], ["read_rows"]),
        helper.make_node("Loop", ["read_rows", "read_true"], ["read_texts"], body=body),
        helper.make_node("Reshape", ["read_texts", "read_batch"], [text]),
    ]
    constants = [
        helper.make_tensor("read_true", TensorProto.BOOL, [], [True]),
        helper.make_tensor("read_zero", int64, [1], [0]),
        helper.make_tensor("read_last", int64, [1], [SPECIAL_ID]),
    ]
    return outer, constants


def _decoder() -> JsonObject:
    characters = _characters()
    return {
        "id_vocab": "\n".join(characters[value] for value in range(256)),
        "byte_decoder": "\n".join(f"{ord(character)}\t{value}" for value, character in characters.items()),
        "added_tokens": f"{SPECIAL_ID}\t",
        "all_special_ids": "",
        "en_normalization": 0,
        "skip_special_tokens": 0,
        "whitespace_token": 0,
        "bos_token": "",
        "eos_token": "",
        "unk_token": "",
    }


def _characters() -> dict[int, str]:
    return {value: character for character, value in byte_alphabet().items()}
