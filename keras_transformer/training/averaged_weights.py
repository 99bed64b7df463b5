"""Evaluating and saving with the moving average of the weights."""

import keras


class AveragedWeights(keras.callbacks.SwapEMAWeights):
    """Puts the moving average of the weights in their place while a model is evaluated, and the weights back afterwards.

        average <- momentum average + (1 - momentum) weights,    after each update

    as an optimizer with `use_ema=True` keeps it; it begins with the weights after the first update. `fit` itself leaves the
    average in the model at its end, so that what is saved and exported afterwards has it. It is among the optimizer's
    variables, which `TrainingCheckpoint` saves.

    `keras.callbacks.SwapEMAWeights` swaps by adding and subtracting on TensorFlow, which rounds: the training goes on with
    other weights than it had. Here values are exchanged, and evaluation changes nothing.

    Args:
        swap_on_epoch: bool. Whether the average also stands in the model from the end of an epoch to the beginning of the
            next, for callbacks that come later in the list and save or generate. Defaults to False.

    Raises:
        ValueError: when it is to swap, and the optimizer has no `use_ema=True`.

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
