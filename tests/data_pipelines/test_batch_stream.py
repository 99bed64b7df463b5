import numpy as np

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
