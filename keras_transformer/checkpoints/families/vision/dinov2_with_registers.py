"""DINOv2 with registers: transformers' `Dinov2WithRegistersModel` and its head."""

from __future__ import annotations

from typing import Any

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.vision.dinov2 import Dinov2
from keras_transformer.checkpoints.layouts import Expanded
from keras_transformer.checkpoints.mapping import Entry


class Dinov2WithRegisters(Dinov2):
    """DINOv2 with registers: Darcet et al., arXiv 2309.16588.

    Images of another size than the config's resize the position table without the antialiasing of transformers.
    """

    base_prefix = "dinov2_with_registers."

    def options(self, config: Config) -> dict[str, Any]:
        return {"num_register_tokens": config.integer("num_register_tokens", 4)}

    def entries(self, config: Config) -> list[Entry]:
        registers = Entry(("embeddings.register_tokens",), ("patch_embedding/register_embeddings",), Expanded())
        return [*super().entries(config), registers]
