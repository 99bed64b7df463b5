"""One file per architecture, one line here for each `model_type` of a config."""

from keras_transformer.checkpoints.architectures.bert import Bert
from keras_transformer.checkpoints.errors import UnknownArchitectureError

ARCHITECTURES = {
    "bert": Bert,
}


def find_architecture(config):
    """The `Architecture` of a `Config`.

    Raises:
        UnknownArchitectureError: its "model_type" is not in `ARCHITECTURES`.
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnknownArchitectureError(f"{config.source}: unknown model_type {str(name)[:80]!r}. Known: {known}")
    return ARCHITECTURES[name]()
