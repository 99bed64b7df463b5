import keras
import numpy as np
import pytest

from keras_transformer.data import BatchStream


def stream():
    def make(epoch, step):
        inputs = {"a": np.array([[epoch, step]]), "b": np.array([[10 * epoch]]), "c": np.array([[step]])}
        return inputs, np.array([step]), np.array([0.5])

    return BatchStream(make, 3, fingerprint="data", fixed_shapes=True)


def test_with_inputs_leaves_the_others_out_and_keeps_labels_weights_and_steps():
    narrow = stream().with_inputs(name for name in ("c", "a"))
    assert (len(narrow), narrow.fingerprint, narrow.fixed_shapes) == (3, "data", True)
    for _ in range(2):  # The names are kept, whatever they came in.
        inputs, labels, weights = narrow[7]
        assert {name: value.tolist() for name, value in inputs.items()} == {"c": [[1]], "a": [[2, 1]]}
        assert (labels.tolist(), weights.tolist()) == ([1], [0.5])
    narrow.first_step = 4
    inputs, labels, _ = next(iter(narrow.repeat().as_numpy_iterator()))
    assert (sorted(inputs), inputs["a"].tolist(), labels.tolist()) == (["a", "c"], [[1, 1]], [1])


def test_evaluate_and_predict_take_one_pass():
    batches = BatchStream(lambda epoch, step: (np.full((2, 3), 10.0 * epoch + step), np.ones((2, 1))), 4)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(loss="mse")
    expected = model.evaluate(batches.epoch(), verbose=0)
    assert expected == pytest.approx(np.mean([(3 * step - 1) ** 2 for step in range(4)]))
    assert model.evaluate(batches, verbose=0) == pytest.approx(expected)
    assert model.predict(batches, verbose=0)[::2, 0].tolist() == [0.0, 3.0, 6.0, 9.0]
    history = model.fit(batches, validation_data=batches, epochs=2, verbose=0).history
    assert len(history["val_loss"]) == 2
