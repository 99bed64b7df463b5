"""Writes the bundles that are mutated: `python -m tests.fuzz.seeds FOLDER`."""

import pathlib
import sys


def main(folder):
    import keras

    from keras_transformer import models, tasks
    from keras_transformer.export import export

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(0)
    mlp = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax", name="probabilities")]
    )
    export(mlp, folder / "mlp")
    size = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=12)
    gpt = tasks.LanguageModel(models.Decoder(size, 30, max_sequence_length=16))
    export(gpt, folder / "gpt", formats=("onnx", "tflite"))
    (folder / "done").touch()


if __name__ == "__main__":
    main(sys.argv[1])
