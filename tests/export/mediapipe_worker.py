"""Writes the files of test_mediapipe.py, and what Keras answers: `mediapipe_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer import models, tasks
from keras_transformer.export import write_mediapipe
from keras_transformer.text import WordPiece
from keras_transformer.vision import ImageProcessor

SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=24)
WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "the", "first", "text"),
    *("is", "this", "one", "two", "cat", "##s", "##ing", ",", "!", "?"),
]
LENGTH, IMAGE = 12, (16, 24, 3)
TEXTS = ["Hello world, this is the first TEXT!", "cats?", "", "one two " * 20, "unseen cat"]
CLASSES = ["cat", "große Katze", "dog"]
PROCESSOR = ImageProcessor(mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.25])


def randomize(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return model


def images():
    return np.random.default_rng(7).integers(0, 256, (3, *IMAGE)).astype("uint8")


def pixels():
    return PROCESSOR(list(images()))


def detections(model):
    """Corners in pixels, class and score of each query, the surest first."""
    model.processor = PROCESSOR
    found = model.detect(list(images()), threshold=0.0)
    return np.stack([np.concatenate([each.boxes, each.labels[:, None], each.scores[:, None]], 1) for each in found])


def image_models():
    backbone = models.ViT(SIZE, patch_size=8, image_size=IMAGE[:2])
    yield "image_classifier", tasks.ImageClassifier(backbone, len(CLASSES)), {"class_names": CLASSES}
    vector = keras.layers.GlobalAveragePooling1D(name="embedding")(backbone.output)
    yield "image_embedder", keras.Model(backbone.input, vector), {}
    backbone = models.YOLOS(SIZE, patch_size=8, image_size=IMAGE[:2], num_detection_tokens=9)
    yield "object_detector", tasks.ObjectDetector(backbone, len(CLASSES)), {"class_names": CLASSES}


def text_models():
    backbone = models.Encoder(SIZE, len(WORDS), max_sequence_length=LENGTH)
    classifier = tasks.SequenceClassifier(backbone, len(CLASSES), activation=None)
    yield "text_classifier", classifier, {"class_names": CLASSES, "description": "Texts about cats"}
    yield "text_embedder", tasks.SentenceEmbedder(models.BERT(SIZE, len(WORDS))), {}


def main(out):
    keras.utils.set_random_seed(0)
    answers = {}
    for task, model, metadata in image_models():
        (name,) = (each.name for each in model.inputs)
        metadata = metadata | {"inputs": {name: PROCESSOR.normalization}}
        report = write_mediapipe(randomize(model), out / f"{task}.tflite", task, metadata=metadata)
        assert report["mediapipe"].ratio < 1e-4
        answers[task] = detections(model) if task == "object_detector" else np.asarray(model(pixels()))
    tokenizer = WordPiece(WORDS)
    for task, model, metadata in text_models():
        write_mediapipe(
            randomize(model), out / f"{task}.tflite", task, tokenizer=tokenizer, metadata=metadata, max_length=LENGTH
        )
        arrays = tokenizer(TEXTS, start=True, end=True, max_length=LENGTH, return_segment_ids=True)
        found = model({each.name: arrays[each.name] for each in model.inputs})
        answers[task] = np.asarray(keras.ops.softmax(found) if task == "text_classifier" else found)
        if task == "text_classifier":
            path = out / "again.tflite"
            write_mediapipe(model, path, task, tokenizer=tokenizer, metadata=metadata, max_length=LENGTH)
    np.savez(out / "answers.npz", **answers)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
