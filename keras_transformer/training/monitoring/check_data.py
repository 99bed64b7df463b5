"""A look at the first batches before the model is trained on them."""

from __future__ import annotations

from collections.abc import Callable

import keras

from keras_transformer.attention.arguments import positive
from keras_transformer.training.monitoring.batch_rules import BatchRules
from keras_transformer.training.monitoring.observed_steps import observe_steps, stop_observing, whole_batch
from keras_transformer.utils.types import Logs, Tensor, Tensors


class CheckData(keras.callbacks.Callback):
    """Callback that refuses wrong data with one clear line, before the step that would be trained on it.

    Checked in each of the first batches:

    - inputs, labels and sample weights are finite;
    - token ids are in the vocabulary of the embedding that they are given to, and are integers: devices other than a CPU
      take wrong ids for others, or look up zeros, without an error;
    - labels are classes of the model's output, `ignore_id` aside, for `MaskedCrossentropy`, `NextTokenTrainer` and Keras's
      cross-entropies; probabilities are in 0 to 1 and sum to 1; at least one label counts;
    - a row with a label has at least one token that is not padding;
    - the model's output is a probability where the loss expects one (`from_logits=False`);
    - images are not integers up to 255 in a model without a layer that rescales them, which is only a warning.

    The model is called once, on the first batch, without compilation; later batches are only looked at with numpy. Under
    `tf.distribute` a batch has the rows of all replicas, or of those in this process.

    Args:
        batches: int >= 1, or None for every batch. Number of batches that are checked in each `fit`. Default 10.

    Raises:
        DataError: in `fit`, before the step of the batch that it names.
        ValueError: `batches` below 1.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models, tasks, training
    >>> model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> model.compile("adam", training.MaskedCrossentropy())
    >>> token_ids = np.array([[3, 1, 4], [1, 5, 50]])
    >>> x = {"token_ids": token_ids, "padding_mask": token_ids > 0}
    >>> try:
    ...     _ = model.fit(x, token_ids, callbacks=[CheckData()], shuffle=False, verbose=0)
    ... except training.DataError as error:
    ...     print(error)
    Batch 0: 'token_ids' is 50 at row 1, column 2; the ids of 'token_embedding' are 0 to 49.
    """

    def __init__(self, batches: int | None = 10) -> None:
        super().__init__()
        self.batches = None if batches is None else positive("batches", batches)
        self._rules: BatchRules | None = None
        self._trained: keras.Model = None
        self._seen = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        # In place of self.model, which on JAX moves the state of the training into the model.
        self._trained, self._rules, self._seen = self.model, None, 0
        observe_steps(self._trained, self._before_step, takes_replicas=True)

    def on_train_end(self, logs: Logs | None = None) -> None:
        stop_observing(self._trained, self._before_step)

    def _before_step(self, batches: list[object], value: Callable[[keras.Variable], Tensor]) -> None:
        for batch in batches:
            batch = keras.utils.unpack_x_y_sample_weight(whole_batch(self._trained, batch))
            if self._rules is None:
                is_stateless = keras.backend.backend() == "jax"
                self._rules = BatchRules(self._trained, batch, value if is_stateless else None)
            self._rules.check(batch, f"Batch {self._seen}")
            self._seen += 1
            if self._seen == self.batches:
                stop_observing(self._trained, self._before_step)
                return


def check_batch(model: keras.Model, x: Tensors, y: Tensors | None = None, sample_weight: Tensors | None = None) -> None:
    """Raises an error if a model cannot be trained on a batch: the checks of `CheckData`, without `fit`.

    Args:
        model: a compiled, built `keras.Model`.
        x, y, sample_weight: a batch, as of `train_on_batch`.

    Raises:
        DataError: the message names the array, the place in it, its value, and the valid range.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import training
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    >>> try:
    ...     check_batch(model, np.zeros((2, 2)), np.array([1, 3]))
    ... except training.DataError as error:
    ...     print(error)
    The batch: label 'y' is 3 at row 1; the classes are 0 to 2.
    """
    batch = (x, y, sample_weight)
    BatchRules(model, batch).check(batch)
