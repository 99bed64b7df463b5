"""Writes the folders of test_transformers_js_language.py, and what Keras generates: `... OUT_DIRECTORY`."""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tokenizers

from keras_transformer import models, tasks
from keras_transformer.audio import LogMel
from keras_transformer.export import write_transformers_js
from keras_transformer.generation.prompts import frame_of
from keras_transformer.text import BytePair, Bytes, HuggingFaceTokenizer, WordPiece

TEXTS = ["Hello world", "a"]
NEW = 7
CORPUS = ["hello world, a small world of words and of worlds"] * 3
SIZE = models.Size(2, 16, 2, 24)
LARGER = models.Size(1, 64, 2, 64)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "a", "##s", "of", "word", ","]
WHISPER = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
# One second; the model takes 100 frames of 20 bands.
LOG_MEL = LogMel.whisper(20, num_samples=16_000)


def randomize(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        is_matrix = len(weight.shape) > 1
        weight.assign(
            random.normal(0, 0.5, weight.shape) if is_matrix else weight + random.normal(0, 0.1, weight.shape)
        )
    return model


def decoder():
    """Rotary positions, fewer key/value heads, a start token and an end token."""
    tokenizer = BytePair.train(CORPUS, 280)
    backbone = models.Llama(models.Size(1, 16, 4, 24), tokenizer.vocabulary_size, num_key_value_heads=2)
    start, end = tokenizer.start_id, tokenizer.end_id
    return tasks.LanguageModel(backbone, tie_embeddings=False, tokenizer=tokenizer, start_id=start, end_id=end)


def bytes_decoder():
    """Learned positions, neither a start nor an end token; its matrices are large enough to be quantized."""
    backbone = models.Decoder(LARGER, 260, max_sequence_length=40)
    return tasks.LanguageModel(backbone, tokenizer=Bytes(), end_id=[])


def translator():
    """An encoder-decoder whose texts end with `</s>`; its matrices are large enough to be quantized."""
    tokenizer = BytePair.train(CORPUS, 280)
    backbone = models.Transformer(LARGER, tokenizer.vocabulary_size, max_sequence_length=40)
    return tasks.LanguageModel(backbone, tokenizer=tokenizer)


def t5():
    """Relative positions, and texts of words without special tokens around them."""
    size = models.T5Size(2, 16, 2, 24, head_dim=4)
    return tasks.LanguageModel(models.T5(size, len(WORDS)), tokenizer=WordPiece(WORDS), start_id=0, end_id=3)


def whisper():
    """Begins with the tokens of a language and a task. They are behind all others, as the library expects."""
    content = BytePair.train(CORPUS, 270, special_tokens={"end": WHISPER[0]})._files()["tokenizer.json"].decode()
    extended = tokenizers.Tokenizer.from_str(content)
    extended.add_special_tokens(list(WHISPER[1:]))
    tokenizer = HuggingFaceTokenizer(extended.to_str())
    backbone = models.Whisper(SIZE, tokenizer.vocabulary_size, num_mel_bins=20, num_frames=100, max_sequence_length=20)
    start, end = map(tokenizer.token_to_id, (WHISPER[1], WHISPER[0]))
    return tasks.LanguageModel(backbone, tokenizer=tokenizer, start_id=start, end_id=end)


CASES = {
    "decoder": (decoder, "text-generation", {}),
    "decoder_q4": (bytes_decoder, "text-generation", {"quantize": "weight_int4"}),
    "t5": (t5, "text2text-generation", {}),
    "translator_q8": (translator, "translation", {"quantize": "int8"}),
    "whisper": (whisper, "automatic-speech-recognition", {"processor": LOG_MEL}),
}


def samples():
    """A sweep of one second."""
    time = np.arange(16_000) / 16_000
    return (0.5 * np.sin(2 * np.pi * 300 * time * (1 + 2 * time))).astype("float32")


def main(out, names):
    node_modules, answers = os.environ.get("NODE_MODULES"), {}
    for name in names:
        make, task, options = CASES[name]
        keras.utils.set_random_seed(0)
        model = randomize(make())
        report = write_transformers_js(model, out / name, task, node_modules=node_modules, **options)
        answers[name] = {"ratio": report["onnx"].ratio}
        if name == "whisper":
            features = np.asarray(LOG_MEL(samples()[None]))
            prefix = [model.tokenizer.token_to_id(each) for each in WHISPER[1:]]
            tokens = model.generate({"features": features, "token_ids": [prefix]}, max_new_tokens=NEW)
        else:
            frame = frame_of(model.tokenizer, model.start_id, model.is_encoder_decoder)
            before = [] if model.is_encoder_decoder or model.start_id is None else [model.start_id]
            prompts = [[*before, *model.tokenizer.encode(text, **frame)] for text in TEXTS]
            tokens = model.generate(prompts, max_new_tokens=NEW)
        texts = [model.tokenizer.decode(each) for each in tokens]
        answers[name] |= {"tokens": tokens, "texts": texts}
    (out / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:] or list(CASES))
