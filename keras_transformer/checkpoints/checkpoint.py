"""What a model remembers of the checkpoint that it came from."""

from keras_transformer.checkpoints.errors import CheckpointError

_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json")
_LARGEST_FILE = 2**26
# The settings of the parts of a sentence-transformers model, such as "1_Pooling/config.json".
_MODULE_FILES = "[0-9]*_*/*.json"


class Checkpoint:
    """The origin of a model, with which `to_huggingface` writes it back.

    Attributes:
        architecture: `Architecture`.
        config: `Config`.
        entries: the mapping: list of `mapping.Entry`.
        dtypes: dict of the name of a tensor to safetensors' name of its dtype.
        names: dict of the name of a tensor to that under which the file has it.
        files: dict of name to bytes: the config, the tokenizer and what else there is beside the weights.
        unused: dict of the name of a tensor that the model has no use for to its array.
    """

    def __init__(self, architecture, config, entries, dtypes, names, files, unused):
        self.architecture = architecture
        self.config = config
        self.entries = entries
        self.dtypes = dtypes
        self.names = names
        self.files = files
        self.unused = unused

    @classmethod
    def of(cls, folder, architecture, entries, unused):
        """That of a `Folder`; `unused` is a list of names of tensors."""
        files = {
            path.relative_to(folder.path).as_posix(): path.read_bytes()
            for path in sorted([*folder.path.iterdir(), *folder.path.glob(_MODULE_FILES)])
            if path.suffix in (".json", ".txt", ".model", ".jinja")
            and not path.name.endswith(_WEIGHT_SUFFIXES)
            and path.stat().st_size <= _LARGEST_FILE
        }
        dtypes = {name: info.dtype for name, info in folder.tensors.items()}
        names = {name: info.name for name, info in folder.tensors.items()}
        unused = {name: folder.read(name) for name in unused}
        return cls(architecture, folder.config, entries, dtypes, names, files, unused)


def checkpoint_of(model):
    """The `Checkpoint` of a model.

    Raises:
        CheckpointError: it has none.
    """
    found = getattr(model, "checkpoint", None)
    if not isinstance(found, Checkpoint):
        raise CheckpointError(
            f"{model.name!r} was not read by from_huggingface, and no config is known for it: pass like=, a folder of "
            "the same architecture."
        )
    return found
