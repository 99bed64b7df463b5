"""Loading of Hugging Face checkpoints into Keras models."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_transformer import tasks
from keras_transformer.backend import keras_private
from keras_transformer.backend.devices.unallocated import allocate, allocate_parts, unallocated
from keras_transformer.checkpoints.architecture import Architecture, Head, head_of
from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import CheckpointError, ConfigError, UnknownArchitectureError
from keras_transformer.checkpoints.families import find_architecture
from keras_transformer.checkpoints.files.folder import Folder, TensorInfo, find_folder
from keras_transformer.checkpoints.files.lazy_tensors import Bounds, as_lazy
from keras_transformer.checkpoints.files.processors import with_processor
from keras_transformer.checkpoints.files.sentence_transformers import sentence_head
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.checkpoints.transfers import Transfer, check_range, check_transfers, make_transfers
from keras_transformer.utils.types import Path

_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)

# What code raises for a list in place of a number, or the reverse.
_OF_OTHER_TYPES = (TypeError, AttributeError, LookupError, ArithmeticError)


def from_huggingface(
    source: Path,
    *,
    task: str | Callable[[keras.Model], keras.Model] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    verbose: int = 1,
) -> keras.Model:
    """Loads a checkpoint of Hugging Face into a Keras model, which trains, generates and exports as any other.

    Memory: that of the weights and of one tensor. Nothing is allocated before the config and the names and shapes of all
    tensors are known to match. Pickles are never opened. On JAX with a `keras.distribution` set, as in the function that
    builds the model of `training.distributed`, each process reads the parts of its own devices only.

    Args:
        source: str or path of a folder with `config.json` and safetensors; or the name of a repository, "owner/name", which
            huggingface_hub downloads.
        task: None for the head of the checkpoint; "backbone" for no head; or a function of the backbone to a model whose
            other weights are initialized, such as `functools.partial(tasks.SequenceClassifier, num_classes=3)`.
        dtype: name of a dtype or a policy ("bfloat16", "mixed_float16"). Defaults to Keras's current policy. Tensors are
            converted to it.
        verbose: int. 1 for a progress bar, 0 for none.

    Returns:
        `keras.Model`: one of `models` with a head of `tasks`; from a folder of sentence-transformers, a
        `tasks.SentenceEmbedder`. Its attributes `tokenizer` and `processor` (of images or audio) are set if the folder has
        one; `checkpoint` is for `to_huggingface`.

    Raises:
        MissingFileError: the folder, the repository, the config or a shard does not exist.
        CorruptFileError: a file is truncated or is not in the format of its extension.
        UnsafePathError: a file of the folder refers to a path outside of it.
        UnknownArchitectureError: a `model_type` or a head is not supported; the message lists those that are.
        ConfigError: a setting is missing, out of range, or of an unsupported variant.
        MissingTensorError, UnexpectedTensorError, TensorShapeError: tensors and config do not match.
        TensorTypeError: a tensor has integers in place of floats, or a value that is infinite in the dtype of its weight.

    Example:

    >>> model = from_huggingface("sentence-transformers/all-MiniLM-L6-v2")  # doctest: +SKIP

    Reference: the layout of transformers 5 and safetensors.
    """
    return read_folder(Folder(find_folder(source)), task=task, dtype=dtype, verbose=verbose)


def read_folder(
    folder: Folder,
    *,
    task: str | Callable[[keras.Model], keras.Model] | None,
    dtype: str | keras.DTypePolicy | None,
    verbose: int,
) -> keras.Model:
    """Returns the model of a `Folder`; see `from_huggingface`."""
    _check_depths(folder)
    with _naming_the_config(folder.config):
        architecture = find_architecture(folder.config)
        prefix, entries = _backbone_entries(architecture, folder)
        head = _find_head(architecture, folder, task)
        head_entries = head.entries(folder.config, prefix)
        unused = _unused(folder, architecture, head)
    with _policy(dtype), unallocated():
        with _naming_the_config(folder.config):
            model = architecture.backbone(folder.config)
            model = head.build(model, folder.config) if task is None else model
        entries = entries + head_entries if task is None else entries
        transfers = make_transfers(entries, model)
        check_transfers(
            transfers, model, _required(folder, head_entries if task else [], unused), architecture, folder.source
        )
        model = task(model) if callable(task) else model
    if keras_private.stateless_scope() is None:  # Else the caller asks for shapes only, in `unallocated`.
        _fill(model, transfers, folder, verbose)
    if isinstance(model, tasks.LanguageModel):
        model.sampling = folder.sampling
    model = with_processor(model, folder)
    model.checkpoint = Checkpoint.of(folder, architecture, entries, unused)
    return model


def checkpoint_in(path: Path) -> Checkpoint:
    """Returns the `Checkpoint` of a folder, without its tensors.

    Raises:
        CheckpointError: as `from_huggingface`, for the folder and its config.
    """
    folder = Folder(find_folder(path))
    with _naming_the_config(folder.config):
        architecture = find_architecture(folder.config)
        prefix, entries = _backbone_entries(architecture, folder)
        head = _find_head(architecture, folder, None)
        entries += head.entries(folder.config, prefix)
        unused = _unused(folder, architecture, head)
    return Checkpoint.of(folder, architecture, entries, unused)


@contextlib.contextmanager
def _naming_the_config(config: Config) -> Iterator[None]:
    """Context manager: settings that are in range but incompatible, or nested ones of another type, raise `ConfigError`."""
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, *_OF_OTHER_TYPES) as error:
        reason = next(iter(str(error).splitlines()), "")
        kind = f"{type(error).__name__}: " if isinstance(error, _OF_OTHER_TYPES) else ""
        raise ConfigError(f"{config.source}: {kind}{reason}") from error


def _backbone_entries(architecture: Architecture, folder: Folder) -> tuple[str, list[Entry]]:
    """Returns the prefix of the backbone's tensors in this checkpoint, and its mapping."""
    known = architecture.base_prefix
    known = (known,) if isinstance(known, str) else known
    prefix = next((each for each in known if any(name.startswith(each) for name in folder.tensors)), "")
    return prefix, [entry.prefixed(prefix) for entry in architecture.entries(folder.config)]


def _find_head(architecture: Architecture, folder: Folder, task: object) -> Head:
    """Returns the head of the checkpoint; with another `task`, it may be unknown."""
    sentence = sentence_head(folder)
    if sentence is not None:
        return sentence
    try:
        return architecture.find_head(head_of(folder.config), folder.config.source)
    except UnknownArchitectureError:
        if task is None:
            raise
        return Head()


def _unused(folder: Folder, architecture: Architecture, head: Head) -> list[str]:
    """Returns the names of the tensors that neither the backbone nor its head uses."""
    patterns = (*architecture.ignored_in(folder.config), *head.ignored)
    return [name for name in folder.tensors if any(re.search(pattern, name) for pattern in patterns)]


def _required(folder: Folder, omitted: list[Entry], unused: list[str]) -> dict[str, TensorInfo]:
    """Returns the tensors that need a weight: all except unused ones and those of an omitted head."""
    names = {*unused, *(name for entry in omitted for name in entry.theirs)}
    return {name: info for name, info in folder.tensors.items() if name not in names}


def _check_depths(folder: Folder) -> None:
    """Raises `ConfigError` for more layers than tensors, before a graph of them is built."""
    for name in _LAYERS:
        folder.config.check_depth(name, folder.config.integer(name, 0, minimum=0))


@contextlib.contextmanager
def _policy(dtype: str | keras.DTypePolicy | None) -> Iterator[None]:
    """Context with another dtype policy of Keras; None keeps the current one."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(before if dtype is None else dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _fill(model: keras.Model, transfers: list[Transfer], folder: Folder, verbose: int) -> None:
    """Allocates every weight with its values, tensor by tensor."""
    is_distributed = keras.backend.backend() == "jax" and keras.distribution.distribution() is not None
    progress = keras.utils.Progbar(len(transfers), unit_name="tensor", verbose=verbose)
    # A tensor is in memory twice while it is copied: the largest first, when little else is allocated.
    for transfer in sorted(transfers, key=lambda transfer: transfer.size, reverse=True):
        if is_distributed:
            _fill_parts(transfer, folder)
        else:
            values = transfer.layout.read([folder.read(name) for name in transfer.theirs], transfer.shapes)
            for variable, value in zip(transfer.variables, values, strict=True):
                check_range(transfer.theirs[0], value, variable.dtype, folder.source)
                allocate(variable, value)
        progress.add(1)
    filled = {id(variable) for transfer in transfers for variable in transfer.variables}
    for variable in model.variables:
        if id(variable) not in filled:
            allocate(variable)


def _fill_parts(transfer: Transfer, folder: Folder) -> None:
    """Allocates the weights of a transfer on the devices of the distribution, each with its part of the tensors."""
    tensors: Any = [folder.lazy(name) for name in transfer.theirs]
    values = transfer.layout.read(tensors, transfer.shapes)
    for variable, value in zip(transfer.variables, values, strict=True):
        tensor = as_lazy(value)

        def read(bounds: Bounds, tensor=tensor, dtype=variable.dtype) -> np.ndarray:
            part = tensor.part(bounds)
            check_range(transfer.theirs[0], part, dtype, folder.source)
            return part

        allocate_parts(variable, read)
