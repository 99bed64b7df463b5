"""From a checkpoint of Hugging Face to a Keras model."""

import re

import keras

from keras_transformer.backend.unallocated import allocate, unallocated
from keras_transformer.checkpoints.architecture import Head, head_of
from keras_transformer.checkpoints.architectures import find_architecture
from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.errors import CheckpointError, ConfigError, UnknownArchitectureError
from keras_transformer.checkpoints.folder import Folder, find_folder
from keras_transformer.checkpoints.processors import attach_processor
from keras_transformer.checkpoints.sentence_transformers import sentence_head
from keras_transformer.checkpoints.transfers import check, pair

_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)


def from_huggingface(source, *, task=None, dtype=None, verbose=1):
    """Reads a checkpoint of Hugging Face into a Keras model, which trains, generates and exports as any other.

    Memory: that of the weights, and of one tensor at a time. Nothing is taken before the config, the names and the shapes of
    all tensors agree. Pickles are never opened.

    Args:
        source: str or path: a folder with `config.json` and safetensors; or the name of a repository, "owner/name", which
            huggingface_hub fetches.
        task: None for the head that the checkpoint has; "backbone" for none; or a function from the backbone to a model
            whose own weights begin anew, such as `functools.partial(tasks.SequenceClassifier, num_classes=3)`.
        dtype: name of a dtype or a policy ("bfloat16", "mixed_float16"), or None for Keras's current one. Tensors of any
            dtype become weights of this one.
        verbose: int: 1 for a progress bar, 0 for none.

    Returns:
        `keras.Model`: one of `models` under a head of `tasks`; of a folder of sentence-transformers, a
        `tasks.SentenceEmbedder`. Its tokenizer, or the processor of its images or sounds, is
        its `tokenizer` or `processor`, where the folder has one; `checkpoint` is what `to_huggingface` needs.

    Raises:
        MissingFileError: no such folder, repository, config or shard.
        CorruptFileError: a file that is truncated, or not what its name says.
        UnsafePathError: the folder names a file outside of itself.
        UnknownArchitectureError: a `model_type` or a head that is not built here; the message lists those that are.
        ConfigError: a setting that is missing, absurd, or of a variant that is not built.
        MissingTensorError, UnexpectedTensorError, TensorShapeError: tensors and config do not agree.

    Example:

    >>> model = from_huggingface("sentence-transformers/all-MiniLM-L6-v2")  # doctest: +SKIP

    Reference: the layout of transformers 5 and safetensors.
    """
    folder = Folder(find_folder(source))
    _check_layers(folder)
    architecture = find_architecture(folder.config)
    prefix, entries = _backbone_entries(architecture, folder)
    head = _find_head(architecture, folder, task)
    own = head.entries(folder.config, prefix)
    unused = _unused(folder, architecture, head)
    with _policy(dtype), unallocated():
        model = _backbone(architecture, folder.config)
        if task is None:
            entries, model = entries + own, head.build(model, folder.config)
        transfers = pair(entries, model)
        check(transfers, model, _wanted(folder, own if task else [], unused), architecture, str(folder.path))
        model = task(model) if callable(task) else model
    _fill(model, transfers, folder, verbose)
    model.checkpoint = Checkpoint.of(folder, architecture, entries, unused)
    attach_processor(model, folder)
    return model


def checkpoint_in(path):
    """The `Checkpoint` of a folder, without its tensors.

    Raises:
        CheckpointError: what `from_huggingface` refuses about the folder and its config.
    """
    folder = Folder(find_folder(path))
    architecture = find_architecture(folder.config)
    prefix, entries = _backbone_entries(architecture, folder)
    head = _find_head(architecture, folder, None)
    entries += head.entries(folder.config, prefix)
    return Checkpoint.of(folder, architecture, entries, _unused(folder, architecture, head))


def _backbone(architecture, config):
    """The model without its head; settings that are each in range, and do not go together, are refused as others are."""
    try:
        return architecture.backbone(config)
    except CheckpointError:
        raise
    except ValueError as error:
        raise ConfigError(f"{config.source}: {str(error).splitlines()[0]}") from error


def _backbone_entries(architecture, folder):
    """What stands before the names of the backbone's tensors in this checkpoint, and its mapping."""
    known = architecture.base_prefix
    known = (known,) if isinstance(known, str) else known
    prefix = next((each for each in known if any(name.startswith(each) for name in folder.tensors)), "")
    return prefix, [entry.prefixed(prefix) for entry in architecture.entries(folder.config)]


def _find_head(architecture, folder, task):
    """The head of the checkpoint; where another is wanted, it need not be one that is known."""
    sentence = sentence_head(folder)
    if sentence is not None:
        return sentence
    try:
        return architecture.find_head(head_of(folder.config), folder.config.source)
    except UnknownArchitectureError:
        if task is None:
            raise
        return Head()


def _unused(folder, architecture, head):
    """The names of the tensors that neither the backbone nor its head use."""
    patterns = (*architecture.ignored, *head.ignored)
    return [name for name in folder.tensors if any(re.search(pattern, name) for pattern in patterns)]


def _wanted(folder, left_out, unused):
    """The tensors that have to find their place: all but those of a head that is left out, and unused ones."""
    names = {*unused, *(name for entry in left_out for name in entry.theirs)}
    return {name: info for name, info in folder.tensors.items() if name not in names}


def _check_layers(folder):
    """Refuses more layers than there are tensors, before a graph of them is built."""
    for name in _LAYERS:
        folder.config.check_depth(name, folder.config.integer(name, 0, minimum=0))


class _policy:
    """Sets Keras's dtype policy for a while; None leaves it."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = keras.config.dtype_policy()
        if self.dtype is not None:
            keras.config.set_dtype_policy(self.dtype)

    def __exit__(self, *exception):
        keras.config.set_dtype_policy(self.before)


def _fill(model, transfers, folder, verbose):
    """Gives every weight its values, tensor by tensor."""
    progress = keras.utils.Progbar(len(transfers), unit_name="tensor", verbose=verbose)
    # While one is copied, it is there twice: the largest goes first, when there is little else.
    for transfer in sorted(transfers, key=lambda transfer: transfer.size, reverse=True):
        values = transfer.layout.read([folder.read(name) for name in transfer.theirs], transfer.shapes)
        for variable, value in zip(transfer.variables, values, strict=True):
            allocate(variable, value)
        progress.add(1)
    filled = {id(variable) for transfer in transfers for variable in transfer.variables}
    for variable in model.variables:
        if id(variable) not in filled:
            allocate(variable)
