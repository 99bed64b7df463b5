"""The architectures of GGUF files, by the name in "general.architecture"."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import UnknownArchitectureError
from keras_transformer.checkpoints.gguf.architecture import GgufArchitecture
from keras_transformer.checkpoints.gguf.architectures.bert import Bert
from keras_transformer.checkpoints.gguf.architectures.gemma import Gemma, Gemma2, Gemma3
from keras_transformer.checkpoints.gguf.architectures.gpt2 import Gpt2
from keras_transformer.checkpoints.gguf.architectures.llama import Llama, Qwen2, Qwen3
from keras_transformer.checkpoints.gguf.architectures.t5 import T5

ARCHITECTURES: dict[str, GgufArchitecture] = {
    each.name: each for each in (Bert(), Gemma(), Gemma2(), Gemma3(), Gpt2(), Llama(), Qwen2(), Qwen3(), T5())
}


def find_architecture(name: str, source: str) -> GgufArchitecture:
    """Returns the `GgufArchitecture` of a name.

    Raises:
        UnknownArchitectureError: it is not in `ARCHITECTURES`.
    """
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnknownArchitectureError(f"{source}: no architecture {name[:80]!r}. Known architectures: {known}")
    return ARCHITECTURES[name]


def written_architecture(config: Config) -> GgufArchitecture:
    """Returns the `GgufArchitecture` under which a config of transformers is written.

    Raises:
        UnknownArchitectureError: there is none for its "model_type".
    """
    kind = config.get("model_type")
    found = [each for each in ARCHITECTURES.values() if kind in each.model_types]
    if not found:
        known = ", ".join(name for each in ARCHITECTURES.values() for name in each.model_types)
        raise UnknownArchitectureError(f"{config.source}: {kind!r} is not written as a GGUF file. Known: {known}")
    return found[0]
