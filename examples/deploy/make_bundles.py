"""Trains and exports the two models that the recipes run: a classifier of digits, and a language model with a tokenizer.

    python examples/deploy/make_bundles.py --out bundles

The digits are part of scikit-learn, and the language model reads the documentation of this repository, so that nothing is
downloaded; it takes about three minutes on two cores, and `--steps 2000` writes better texts. `--out` holds afterwards:

    classifier/     a Vision Transformer: 8x8 pixels from 0 to 255 in, probabilities out
    decoder/        a decoder with its cache, and a byte-level byte-pair tokenizer
    decoder_gpu/    the same decoder in fixed shapes, for the GPU of a phone or of a browser
    digit.pgm       one of the test images, as input of the recipes

The first two have a TFLite and an ONNX file, the last a TFLite file. Your own bundles take their place: of any image
classifier, and of any decoder with a tokenizer `text.BytePair`.
"""

import argparse
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import data, models, tasks, text, training
from keras_transformer.export import ExportOptions, GenerationOptions, export

ROOT = Path(__file__).parents[2]
FORMATS = ("tflite", "onnx")
CONTEXT = 128
BATCH_SIZE = 12


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    digits = data.load_images("digits")
    classifier = train_classifier(digits, arguments)
    # A signature for one image with fixed shapes, as accelerators of phones require it.
    described = ExportOptions(static={"batch": 1}, metadata={"class_names": list(digits.class_names)})
    print(export(classifier, arguments.out / "classifier", FORMATS, options=described))
    write_pgm(arguments.out / "digit.pgm", digits.test.images[0])
    decoder = train_decoder(read_text(arguments.text), arguments)
    # Without `generate`: the recipes have the loop in their own language.
    options = GenerationOptions(whole_graph=False, prefill_buckets=tuple(arguments.prompts))
    print(export(decoder, arguments.out / "decoder", FORMATS, options=ExportOptions(generation=options)))
    # The same model for a GPU, which takes fixed shapes only.
    print(
        export(decoder, arguments.out / "decoder_gpu", options=ExportOptions(target="litert-gpu", generation=options))
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bundles"), help="output directory")
    parser.add_argument("--text", type=Path, help="file to train the language model on; default: the documentation")
    parser.add_argument("--epochs", type=int, default=30, help="of the classifier")
    parser.add_argument("--steps", type=int, default=600, help="of the language model")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--prompts", type=int, nargs="+", default=[32, 64], help="lengths with fixed shapes, in TFLite")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def train_classifier(digits: Any, arguments: argparse.Namespace) -> keras.Model:
    """Returns a model that takes pixels from 0 to 255: the normalization is part of it."""
    height, width, channels = digits.train.images.shape[1:]
    size = models.Size(arguments.layers, arguments.width // 2, 4, arguments.width)
    backbone = models.ViT(size, 2, (height, width), num_channels=channels)
    classifier = tasks.ImageClassifier(backbone, len(digits.class_names))
    model = data.on_pixels(classifier, digits.train.images, name="digits")
    batches = data.batches(digits.train, 64, len(digits.class_names), shuffle=True, seed=arguments.seed)
    model.compile(keras.optimizers.AdamW(1e-3), "categorical_crossentropy", metrics=["accuracy"])
    model.fit(batches, epochs=arguments.epochs, shuffle=False, verbose=2)
    return model


def read_text(path: Path | None) -> str:
    """Returns the text of a file, or the documentation of this repository."""
    pages = [path] if path else [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def train_decoder(content: str, arguments: argparse.Namespace) -> tasks.LanguageModel:
    """Returns a language model with its tokenizer."""
    tokenizer = text.BytePair.train([content], arguments.vocabulary)
    token_ids = np.array(tokenizer.encode(content), "int32")
    print(f"{len(content):,} characters, {len(token_ids):,} tokens")
    size = models.Size(arguments.layers, arguments.width, 4, 4 * arguments.width)
    backbone = models.Decoder(size, tokenizer.vocabulary_size, max_sequence_length=CONTEXT)
    model = tasks.LanguageModel(backbone, tokenizer=tokenizer)
    model.compile(keras.optimizers.AdamW(arguments.learning_rate, clipnorm=1.0), training.MaskedCrossentropy())
    batches = data.language_model_batches(token_ids, CONTEXT, BATCH_SIZE, arguments.steps, seed=arguments.seed)
    model.fit(batches, shuffle=False)
    return model


def write_pgm(path: Path, image: np.ndarray) -> None:
    """Writes gray pixels `(H, W, 1)` from 0 to 255."""
    height, width = image.shape[:2]
    path.write_bytes(f"P5\n{width} {height}\n255\n".encode() + image.astype("uint8").tobytes())


if __name__ == "__main__":
    main()
