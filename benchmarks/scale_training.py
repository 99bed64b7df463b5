"""Training of the scales of a quantized language model, with the float model as its teacher."""

import keras

from keras_transformer import training


def train_scales(model, scheme, teacher, batches, learning_rate, verbose=0):
    """Trains the scales and norms of a model that `quantize_weights` has rounded, one pass over batches of inputs.

    Args:
        model: quantized language model; it is not changed.
        scheme: its `WeightScheme`.
        teacher: the float model.
        batches: list of dicts of inputs.
        learning_rate: float: of Adam at first; it falls to zero by a cosine.
        verbose: that of `fit`.

    Returns:
        The trained model, with `quantized_weights` that have the same integers.
    """
    student = training.quantization_aware(model, scheme, step="scales_only")
    trainer = training.Distillation(student, teacher, logits=training.SoftLogits(1.0), label_weight=0.0)
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, len(batches))
    # XLA's products are slower on CPUs.
    trainer.compile(keras.optimizers.Adam(schedule, beta_2=0.99), jit_compile=False)
    trainer.fit(Batches(batches), epochs=1, shuffle=False, verbose=verbose)
    return training.learned_model(student)


class Batches(keras.utils.PyDataset):
    """Batches of inputs without labels."""

    def __init__(self, batches):
        super().__init__()
        self._batches = batches

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, index):
        return (self._batches[index],)
