"""Exports models for accelerators, for test_target_exports.py: `target_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import numpy as np
from worker_cases import run_cases

from keras_transformer.export import ExportOptions, GenerationOptions, export
from keras_transformer.models import BERT, Llama, Size, Transformer
from keras_transformer.tasks import LanguageModel, SequenceClassifier

SIZE, WORDS = Size(1, 16, 2, 32), 50
EXHAUSTIVE = ("classifier_xnnpack", "translator_xnnpack", "decoder_webgpu", "decoder_coreml")
# Of one token, of as many as a signature takes, and of more.
PROMPTS = [[3], [5, 9, 2, 40], [7, 1, 8, 33, 20, 11, 4]]
SOURCES = [[5, 9, 12], [7, 30, 8, 33]]


def _trained_looking(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign_add(random.normal(0.0, 0.1, weight.shape))
    return model


def _exported(model, path, target, **options):
    report = export(model, path, progress=False, options=ExportOptions(target=target, **options))
    return {"report": report.to_dict(), "text": str(report)}


def classifier(path, target):
    model = SequenceClassifier(BERT(SIZE, WORDS, max_sequence_length=16), num_classes=3)
    return _exported(_trained_looking(model), path, target, static={"length": 8})


def decoder(path, target):
    model = LanguageModel(Llama(SIZE, WORDS, num_key_value_heads=1))
    options = GenerationOptions(prefill_buckets=(4,), static_length=12)
    found = _exported(_trained_looking(model), path, target, generation=options)
    return {**found, "tokens": model.generate(PROMPTS, max_new_tokens=5)}


def translator(path, target):
    """Has `encode_4` and `decode_1_4`."""
    model = LanguageModel(Transformer(SIZE, WORDS), start_id=1, end_id=2)
    options = GenerationOptions(prefill_buckets=(4,), static_length=12)
    found = _exported(_trained_looking(model), path, target, generation=options)
    return {**found, "tokens": model.generate(SOURCES, max_new_tokens=5)}


def main(out):
    cases = {
        "classifier_litert-gpu": lambda: classifier(out / "classifier_litert-gpu", "litert-gpu"),
        "decoder_litert-gpu": lambda: decoder(out / "decoder_litert-gpu", "litert-gpu"),
        "classifier_xnnpack": lambda: classifier(out / "classifier_xnnpack", "xnnpack"),
        "translator_xnnpack": lambda: translator(out / "translator_xnnpack", "xnnpack"),
        "decoder_qnn": lambda: decoder(out / "decoder_qnn", "qnn"),
        "decoder_webgpu": lambda: decoder(out / "decoder_webgpu", "webgpu"),
        "decoder_coreml": lambda: decoder(out / "decoder_coreml", "coreml"),
    }
    run_cases(out, cases, exhaustive=EXHAUSTIVE)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
