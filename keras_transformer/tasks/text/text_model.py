"""A functional model with its tokenizer."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import keras

from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer


@serializable
class TextModel(TaskModel):
    """Functional model that saves its tokenizer in its `.keras` file, as `LanguageModel` does.

    `checkpoints.from_huggingface` returns one for an encoder, with or without a head, whose folder has a tokenizer.

    Args:
        inputs: symbolic inputs, as of `keras.Model`.
        outputs: symbolic outputs, as of `keras.Model`.
        name: str.

    Attributes:
        tokenizer: a tokenizer of `keras_transformer.text`, or None. Set it after construction.

    Returns:
        What `keras.Model` with these inputs and outputs returns.

    Example:

    >>> from keras_transformer import load_model, models, tasks, text
    >>> encoder = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=259)
    >>> model = tasks.TextModel.of(tasks.SentenceEmbedder(encoder), text.Bytes())
    >>> model.save("embedder.keras")
    >>> load_model("embedder.keras").tokenizer.encode("A")
    [69]
    """

    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, model: keras.Model, tokenizer: Tokenizer) -> TextModel:
        """Returns a functional model with a tokenizer; its layers are those of `model`, not copies."""
        made = cls(model.input, model.output, name=model.name)
        made.tokenizer = tokenizer
        return made

    def save_assets(self, directory: Path) -> None:
        """Saves the tokenizer in the `.keras` file; called by Keras."""
        if self.tokenizer is not None:
            self.tokenizer.save(directory)

    def load_assets(self, directory: Path) -> None:
        """Loads the tokenizer from the `.keras` file; called by Keras."""
        from keras_transformer.text import load_tokenizer

        if any(pathlib.Path(directory).iterdir()):
            self.tokenizer = load_tokenizer(directory)
