"""Evaluation with exponential moving averages of the weights."""

import keras


class AveragedWeights(keras.callbacks.SwapEMAWeights):
    """Swaps in the moving average of the weights during evaluation, and at the end of training.

        average <- momentum average + (1 - momentum) weights,    after each update

    The optimizer computes the average (`use_ema=True`), starting from the weights after the first update. After `fit` the
    model keeps the average, which is then saved and exported. `TrainingCheckpoint` saves it with the optimizer. With
    `gradient_accumulation_steps=k` Keras averages after each batch, of which one in k updates: for the average over as many
    updates as with momentum m take the momentum `m ** (1 / k)`.

    `keras.callbacks.SwapEMAWeights` swaps by addition and subtraction on TensorFlow, which rounds the weights. Here values
    are exchanged, and evaluation does not affect training.

    Args:
        swap_on_epoch: bool. Whether the average is also in the model from the end of an epoch to the beginning of the next,
            for later callbacks in the list that save or generate. Default False.

    Raises:
        ValueError: at the first swap, if the optimizer lacks `use_ema=True`.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    >>> model.compile(keras.optimizers.SGD(0.25, use_ema=True, ema_momentum=0.75), "mse")
    >>> x, y = np.ones((1, 1)), np.ones((1, 1))
    >>> history = model.fit(x, y, validation_data=(x, y), epochs=2, callbacks=[AveragedWeights()], verbose=0)
    >>> history.history["val_loss"]  # The weight is 0.5, then 0.75; the average 0.5, then 0.5625.
    [0.25, 0.19140625]

    Reference: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992, with exponential weights.
    """

    def _tf_swap_variables(self, optimizer):
        self._backend_swap_variables(optimizer)
