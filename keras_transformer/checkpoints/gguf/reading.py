"""Loading of GGUF files into Keras models."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable

import keras

from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.checkpoints.gguf.folder import GgufFolder
from keras_transformer.checkpoints.reading import read_folder
from keras_transformer.utils.types import Path


def from_gguf(
    file: Path,
    *,
    task: str | Callable[[keras.Model], keras.Model] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    verbose: int = 1,
) -> keras.Model:
    """Loads a GGUF file, as llama.cpp uses it, into a Keras model, which trains, generates and exports as any other.

    Blocks of quantized tensors become floats: `scale * integer + minimum`, as ggml computes them; `export(model, directory,
    ["onnx"], quantize="gguf")` writes their integers and scales again. Memory: that of the weights and of one tensor. The
    head of the file is checked against its size before memory is taken.

    Args:
        file: str or path of a GGUF file of version 2 or 3, little-endian and not split. Architectures: "llama" (Mistral
            and SmolLM2 too), "qwen2", "qwen3", "gemma", "gemma2", "gemma3" (text), "gpt2", "bert", "t5". Tensors may be
            F64, F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, or any other that the gguf package decodes.
        task, dtype, verbose: see `from_huggingface`. A BERT without a pooling is loaded without a head.

    Returns:
        `keras.Model`, with the tokenizer of the file as its attribute `tokenizer`. Its `checkpoint` is for
        `to_huggingface`, which writes safetensors and the tokenizer.

    Raises:
        MissingFileError: there is no such file.
        CorruptFileError: it is not a valid GGUF file, or its bytes are inconsistent.
        UnknownArchitectureError: the architecture is not one of those above.
        ConfigError: a setting is missing, out of range, or of an unsupported variant, such as a mixture of experts.
        MissingTensorError, UnexpectedTensorError, TensorShapeError: tensors and settings do not match.
        InvalidTokenizerError: the tokenizer is of an unknown kind, or inconsistent.
        ImportError: the gguf package is not installed.

    Example:

    >>> model = from_gguf("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
    >>> model.generate("The capital of France is")  # doctest: +SKIP

    Reference: the specification of GGUF, and llama.cpp's conversion of the checkpoints of transformers.
    """
    container = Container(file)
    with tempfile.TemporaryDirectory() as directory:
        folder = GgufFolder(container, pathlib.Path(directory))
        model = read_folder(folder, task=folder.default_task if task is None else task, dtype=dtype, verbose=verbose)
    model.checkpoint.gguf = container.path.resolve()
    return model
