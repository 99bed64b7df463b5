"""Multiple choice."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


def MultipleChoice(scorer: keras.Model, *, name: str = "multiple_choice") -> keras.Model:
    """Multiple choice: applies a model with one logit per text to each choice.

    Each choice is one sequence of question and answer, as from `text.Tokenizer.encode_pair`; axis 1 has the choices.

    Args:
        scorer: `keras.Model` of token inputs `(B, T)` to `(B, 1)`, such as
            `SequenceClassifier(backbone, 1, activation=None)`. It is used, not copied.
        name: str.

    Returns:
        `keras.Model`: the inputs of the scorer with an axis of C choices, `(B, C, T)`, to "logits", float32 `(B, C)`.

    Raises:
        ValueError: a scorer whose output is not `(B, 1)`, or whose inputs are not all `(B, T)`.

    Example:

    >>> from keras_transformer import models, tasks
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> model = MultipleChoice(tasks.SequenceClassifier(backbone, 1, activation=None))
    >>> model.input["token_ids"].shape, model.output_shape
    ((None, None, None), (None, None))

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 4.4 (SWAG).
    """
    tensors = keras.tree.flatten(scorer.input)
    if getattr(scorer.output, "shape", None) != (None, 1) or any(len(tensor.shape) != 2 for tensor in tensors):
        raise ValueError(
            f"{scorer.name!r} must return (B, 1) for inputs of (B, T). Its inputs: {tensors}; its output: {scorer.output!r}"
        )
    inputs = {tensor.name: keras.Input((None, None), dtype=tensor.dtype, name=tensor.name) for tensor in tensors}
    flat = {key: FoldChoices(name=f"fold_{key}")(tensor) for key, tensor in inputs.items()}
    scores = scorer(keras.tree.map_structure(lambda tensor: flat[tensor.name], scorer.input))
    x = UnfoldChoices(dtype="float32", name="logits")([scores, inputs[tensors[0].name]])
    return TaskModel(inputs, x, name=name)


@serializable
class FoldChoices(keras.layers.Layer):
    """`(B, C, T)` to `(B C, T)`: merges choices into the batch axis.

    Call arguments:
        inputs: `(B, C, T)` of any dtype.

    Returns:
        `(B C, T)`.
    """

    def call(self, inputs: Tensor) -> Tensor:
        return ops.reshape(inputs, (-1, ops.shape(inputs)[2]))

    def compute_output_spec(self, inputs: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((None, inputs.shape[2]), dtype=inputs.dtype)


@serializable
class UnfoldChoices(keras.layers.Layer):
    """`(B C, 1)` to `(B, C)`: see `FoldChoices`.

    Call arguments:
        inputs: scores `(B C, 1)`, and any tensor `(B, C, T)`, for its shape.

    Returns:
        `(B, C)`.
    """

    def call(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        scores, whole = inputs
        return ops.reshape(scores, (-1, ops.shape(whole)[1]))

    def compute_output_spec(self, inputs: tuple[Tensor, Tensor]) -> keras.KerasTensor:
        scores, whole = inputs
        return keras.KerasTensor(whole.shape[:2], dtype=self.compute_dtype)
