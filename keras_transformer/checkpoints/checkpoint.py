"""What a model remembers of the checkpoint that it came from."""

from keras_transformer.checkpoints.errors import CheckpointError

_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json")
_LARGEST_FILE = 2**26


class Checkpoint:
    """The origin of a model, with which `to_huggingface` writes it back.

    Attributes:
        architecture: `Architecture`.
        config: `Config`.
        entries: the mapping: list of `mapping.Entry`.
        dtypes: dict of the name of a tensor to safetensors' name of its dtype.
        files: dict of name to bytes: the config, the tokenizer and what else there is beside the weights.
    """

    def __init__(self, architecture, config, entries, dtypes, files):
        self.architecture = architecture
        self.config = config
        self.entries = entries
        self.dtypes = dtypes
        self.files = files

    @classmethod
    def of(cls, folder, architecture, entries):
        """That of a `Folder`."""
        files = {
            path.name: path.read_bytes()
            for path in sorted(folder.path.iterdir())
            if path.suffix in (".json", ".txt", ".model", ".jinja")
            and not path.name.endswith(_WEIGHT_SUFFIXES)
            and path.stat().st_size <= _LARGEST_FILE
        }
        return cls(architecture, folder.config, entries, {n: t.dtype for n, t in folder.tensors.items()}, files)


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
