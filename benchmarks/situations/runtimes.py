"""Where the file runs."""

import subprocess
import sys

import keras
import numpy as np
from example_models.trained import integers, normal, uniform
from keras import layers, ops

from keras_transformer.export import ExportOptions, OnnxOptions
from situations.attempt import check


def _network():
    images = keras.Input((16, 16, 3), name="images")
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="gelu")(images)
    x = layers.LayerNormalization()(layers.Reshape((64, 8))(x))
    x = x + layers.MultiHeadAttention(2, 4)(x, x)
    return keras.Model(images, layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))


def older_onnx_opset(attempt):
    """A device with an older ONNX Runtime: opset 18 and standard operators."""
    options = ExportOptions(onnx=OnnxOptions(opset=18, contrib_ops=False))
    attempt.proven(_network(), uniform(2, 16, 16, 3), options=options)
    if attempt.format == "onnx":
        import onnx

        (path,) = attempt.folder.glob("*/*.onnx")
        domains = {each.domain: each.version for each in onnx.load(path, load_external_data=False).opset_import}
        assert domains == {"": 18}, domains


def without_tensorflow(attempt):
    """A server that has the runtime of the format and numpy, and neither TensorFlow nor Keras."""
    model, images = _network(), uniform(2, 16, 16, 3)
    attempt.export(model)
    (path,) = attempt.folder.iterdir()
    np.save(path.parent / "images.npy", images)
    code = (
        "import sys, numpy as np; from keras_transformer.export import load\n"
        "found = load(sys.argv[1], backend=sys.argv[2])(np.load(sys.argv[3]))\n"
        "np.save(sys.argv[4], found['output']); print(*{'keras', 'tensorflow'} & set(sys.modules))"
    )
    given = [path, attempt.format, path.parent / "images.npy", path.parent / "found.npy"]
    done = subprocess.run([sys.executable, "-c", code, *map(str, given)], check=True, capture_output=True, text=True)
    check({"output": np.load(given[-1])}, model(images))
    if attempt.format != "saved_model":
        assert not done.stdout.split()


def many_requests_of_any_batch(attempt):
    """A server's batches have any number of rows: each row is what it is alone."""
    model, images = _network(), uniform(5, 16, 16, 3)
    bundle = attempt.proven(model, images)
    alone = np.concatenate([bundle(images[index : index + 1])["output"] for index in range(5)])
    check({"output": bundle.predict(images, batch_size=2)["output"]}, alone)


def labels_travel_with_the_file(attempt):
    """Names of classes and what the pixels mean are read from the file on the device."""
    metadata = {"class_names": ["cat", "dog", "owl"], "inputs": {"images": {"range": [0, 1]}}}
    bundle = attempt.proven(_network(), uniform(2, 16, 16, 3), options=ExportOptions(metadata=metadata))
    assert bundle.metadata["class_names"] == ["cat", "dog", "owl"]


class Similar(layers.Layer):
    """The nearest of stored vectors, of a database that is part of the model."""

    def __init__(self, vectors, number):
        super().__init__()
        self.vectors, self.number = ops.convert_to_tensor(vectors), number

    def call(self, queries):
        scores, rows = ops.top_k(ops.matmul(queries, ops.transpose(self.vectors)), self.number)
        return {"scores": scores, "rows": rows}


def search_on_the_device(attempt):
    """A search over stored vectors without a server."""
    queries = keras.Input((8,), name="queries")
    attempt.proven(keras.Model(queries, Similar(normal(40, 8), 5)(queries)), normal(3, 8))


def one_model_two_branches(attempt):
    """A cheap network answers where it is sure, and an expensive one where it is not."""

    class Cascade(keras.Model):
        def __init__(self):
            super().__init__()
            self.small, self.large = (
                layers.Dense(3, "softmax"),
                keras.Sequential([layers.Dense(16, "relu"), layers.Dense(3, "softmax")]),
            )

        def build(self, shape):
            self.small.build(shape)
            self.large.build(shape)

        def call(self, x):
            quick = self.small(x)
            return ops.cond(ops.min(ops.max(quick, axis=-1)) > 0.5, lambda: quick, lambda: self.large(x))

    x = keras.Input((6,), name="x")
    model = keras.Model(x, Cascade()(x))
    attempt.proven(model, normal(1, 6) * 10, normal(1, 6) * 0.01, normal(4, 6))


def tokens_on_a_phone_gpu(attempt):
    """A text classifier whose TFLite signature has fixed sizes for a GPU; other formats take any."""
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.Embedding(30, 8, mask_zero=True)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    model = keras.Model(tokens, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
    ids = integers(29, 1, 16) + 1
    ids[:, 10:] = 0
    attempt.proven(model, ids, options=ExportOptions(static={"batch": 1, "length": 16}))


SITUATIONS = (
    older_onnx_opset,
    without_tensorflow,
    many_requests_of_any_batch,
    labels_travel_with_the_file,
    search_on_the_device,
    one_model_two_branches,
    tokens_on_a_phone_gpu,
)
