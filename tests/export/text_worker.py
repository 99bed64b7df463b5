"""Writes the files of text/test_files.py: `text_worker.py OUT_DIRECTORY`."""

import importlib.util
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from worker_cases import is_exhaustive

from keras_transformer import models, tasks
from keras_transformer.export import (
    ExportOptions,
    ParityError,
    export,
    export_tokenizer,
    write_text_onnx,
    write_text_tflite,
)
from keras_transformer.export.text.files import spec
from keras_transformer.text import SentencePiece, WordPiece, from_huggingface

DATA = pathlib.Path(__file__).parents[1] / "data" / "tokenizers"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", ",", "!", "the", "cat", "##s", "mat"]
OPTIONS = {"start": True, "end": True, "max_length": 12}
HAS_STRINGS = importlib.util.find_spec("onnxruntime_extensions") is not None


def wordpiece():
    return WordPiece(WORDS)


def unigram():
    lines = ["the cat sat on the mat, don't the cats sit? 345 345", "a na\u00efve man, \u4f60\u4f60", "......!!!! 1111"]
    return SentencePiece.train(lines * 20, 330)


def classifier(out):
    size = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    backbone = models.BERT(size, len(WORDS), max_sequence_length=12)
    model = tasks.SequenceClassifier(backbone, num_classes=3)
    options = ExportOptions(static={"batch": 1, "length": 12}, tokenizer_options=OPTIONS)
    export(model, out / "classifier", ["tflite", "onnx"], tokenizer=wordpiece(), progress=False, options=options)
    write_text_tflite(out / "classifier", out / "any.tflite")
    write_text_tflite(out / "classifier", out / "one.tflite", "serve_1x12")


def main(out):
    export_tokenizer(wordpiece(), out / "wordpiece", ["tflite"], tokenizer_options=OPTIONS, progress=False)
    export_tokenizer(from_huggingface(DATA / "gpt2"), out / "gpt2", ["onnx"], progress=False)
    if is_exhaustive():
        export_tokenizer(from_huggingface(DATA / "qwen2"), out / "qwen2", ["tflite"], progress=False)
        export_tokenizer(unigram(), out / "unigram", ["tflite", "onnx"], progress=False)
    classifier(out)
    # A file of another tokenizer.
    right, swapped = spec.TokenizeGraph, [*WORDS[:5], "un", "##able", "##aff", *WORDS[8:]]
    spec.TokenizeGraph = lambda tokenizer, options: right(WordPiece(swapped), options)
    try:
        export_tokenizer(wordpiece(), out / "wrong", ["tflite"], progress=False)
    except ParityError as error:
        (out / "refused.txt").write_text(str(error))
    spec.TokenizeGraph = right
    if HAS_STRINGS:
        write_text_onnx(out / "classifier", out / "classifier.onnx")
        write_text_onnx(out / "gpt2", out / "tokenize.onnx")
        write_text_onnx(out / "gpt2", out / "detokenize.onnx", "detokenize")
    (out / "done").touch()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
