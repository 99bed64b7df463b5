"""Writes the folders of test_transformers_js.py, and what Keras answers: `transformers_js_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from mediapipe_worker import CLASSES, IMAGE, PROCESSOR, SIZE, WORDS, images, randomize

from keras_transformer import models, tasks
from keras_transformer.export import write_transformers_js
from keras_transformer.text import WordPiece
from keras_transformer.vision import ImageProcessor

TEXTS = ["Hello world, this is the [MASK] text!", "[MASK]?", "one two " * 5 + "the [MASK] Über cats"]
LENGTH = 30
PROCESSOR = ImageProcessor(size=IMAGE[:2], mean=PROCESSOR.mean, std=PROCESSOR.std)


def text_models():
    backbone = models.BERT(SIZE, len(WORDS), max_sequence_length=LENGTH)
    yield "feature-extraction", models.Encoder(SIZE, len(WORDS), max_sequence_length=LENGTH), {}
    yield "text-classification", tasks.SequenceClassifier(backbone, len(CLASSES)), {"class_names": CLASSES}
    yield "fill-mask", tasks.MaskedLanguageModel(backbone), {}


def main(out):
    keras.utils.set_random_seed(0)
    node_modules, answers = os.environ.get("NODE_MODULES"), {}
    tokenizer = WordPiece(WORDS)
    for task, model, metadata in text_models():
        options = {"tokenizer": tokenizer, "metadata": metadata, "node_modules": node_modules}
        write_transformers_js(randomize(model), out / task, task, **options)
        for number, text in enumerate(TEXTS):
            ids = tokenizer.encode(text, start=True, end=True, allow_special_tokens=True)
            arrays = {"token_ids": [ids], "padding_mask": [[True] * len(ids)], "segment_ids": [[0] * len(ids)]}
            found = model({each.name: np.array(arrays[each.name]) for each in model.inputs})
            if task == "fill-mask":
                place = ids.index(tokenizer.mask_id)
                found = keras.ops.softmax(found)[:, place]
            answers[f"{task}/{number}"] = np.asarray(found)
    task = "image-classification"
    backbone = models.ViT(SIZE, patch_size=8, image_size=IMAGE[:2])
    model = randomize(tasks.ImageClassifier(backbone, len(CLASSES), activation=None))
    options = {"processor": PROCESSOR, "metadata": {"class_names": CLASSES}, "node_modules": node_modules}
    write_transformers_js(model, out / task, task, **options)
    for number, image in enumerate(images()):
        answers[f"{task}/{number}"] = np.asarray(keras.ops.softmax(model(PROCESSOR(image))))
    np.savez(out / "answers.npz", **answers)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
