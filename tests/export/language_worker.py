"""Exports the language models of test_language.py: `language_worker.py OUT_DIRECTORY`.

Each is left as NAME.keras too. Converters leak memory and can crash, so the tests never run them in pytest's own process.
"""

import functools
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from worker_cases import run_cases

from keras_transformer.attention import LocalAttention, MultiHeadAttention, MultiHeadLatentAttention
from keras_transformer.audio import LogMel
from keras_transformer.export import ExportOptions, GenerationOptions, export
from keras_transformer.export.formats import DEFAULT_FORMATS
from keras_transformer.feedforward import GroupLimitedRouter, MixtureOfExperts, SharedExpertMixture
from keras_transformer.models import (
    RWKV,
    YOCO,
    Decoder,
    Encoder,
    RecurrentMemory,
    Size,
    Transformer,
    TransformerXL,
    Whisper,
    with_front_end,
)
from keras_transformer.tasks import LanguageModel, SequenceClassifier
from keras_transformer.text import BytePair, Bytes, HuggingFaceTokenizer, WordPiece, from_huggingface

TOKENIZER = Bytes()
SIZE = Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=24)
MAX_LENGTH = 24
CHAT = (
    "{% for each in messages %}{{ each.role }}: {{ each.content | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
BUCKETS = (4, 8)
# End tokens that these models, with these weights, generate in some of the test texts.
END_IDS = {"gpt": 203, "translator": 99, "llama": [43, 12], "listener": 39}


def gpt():
    backbone = Decoder(SIZE, TOKENIZER.vocabulary_size, max_sequence_length=MAX_LENGTH)
    return LanguageModel(backbone, tokenizer=TOKENIZER, end_id=END_IDS["gpt"])


def translator():
    backbone = Transformer(SIZE, TOKENIZER.vocabulary_size)
    return LanguageModel(backbone, tokenizer=TOKENIZER, end_id=END_IDS["translator"])


def llama():
    """Rotary positions, RMS normalization, gated feed-forward, grouped heads, untied head."""
    attention = MultiHeadAttention(num_heads=4, key_dim=4, num_key_value_heads=2, position="rotary")
    backbone = Decoder(
        SIZE,
        TOKENIZER.vocabulary_size,
        position=None,
        norm="rms_norm",
        attention=attention,
        feedforward="gated",
        activation="silu",
    )
    return LanguageModel(backbone, tie_embeddings=False, end_id=END_IDS["llama"])


def mistral():
    """Sliding-window attention with a cache of four tokens, independent of the length."""
    attention = MultiHeadAttention(2, 8, num_key_value_heads=1, mechanism=LocalAttention(window=4), position="rotary")
    backbone = Decoder(SIZE, TOKENIZER.vocabulary_size, position=None, norm="rms_norm", attention=attention)
    return LanguageModel(backbone)


def rounded():
    """Grouped heads with a cache in int8."""
    attention = MultiHeadAttention(num_heads=4, key_dim=8, num_key_value_heads=2, position="rotary")
    backbone = Decoder(SIZE, TOKENIZER.vocabulary_size, position=None, norm="rms_norm", attention=attention)
    return LanguageModel(backbone, cache_dtype="int8")


def latent():
    """Latent attention beside experts of DeepSeek; 31 tokens or more at a time take the expanded form."""
    router = GroupLimitedRouter(6, num_groups=3, top_groups=2)
    experts = SharedExpertMixture(MixtureOfExperts(12, router), shared=12, use_gate=False)
    attention = MultiHeadLatentAttention(2, latent_dim=10, key_dim=7, rotary_dim=4, query_latent_dim=8)
    backbone = Decoder(
        SIZE, TOKENIZER.vocabulary_size, position=None, norm="rms_norm", attention=attention, feedforward=experts
    )
    return LanguageModel(backbone)


def yoco():
    """YOCO: shared keys and values, and a window of four tokens; prefill runs half of the layers."""
    size = Size(2, SIZE.hidden_dim, SIZE.num_heads, SIZE.intermediate_dim)
    return LanguageModel(YOCO(size, TOKENIZER.vocabulary_size, window=4, num_key_value_heads=1))


def transformer_xl():
    """Segments of four tokens with a memory of three, so that texts have several segments."""
    return LanguageModel(TransformerXL(SIZE, TOKENIZER.vocabulary_size, segment_length=4, memory_length=3))


def recurrent_memory():
    """Segments of four tokens with two of memory: rows enter new segments at different steps."""
    return LanguageModel(RecurrentMemory(SIZE, TOKENIZER.vocabulary_size, segment_length=4, num_memory_tokens=2))


def rwkv():
    """States of time and channel mixing, and the previous token."""
    return LanguageModel(RWKV(SIZE, TOKENIZER.vocabulary_size, chunk_size=4))


def talker():
    """A tokenizer with a chat template, which goes into the bundle."""
    source = BytePair.train(["the cat sat on the mat and the dog sat on the cat"], 290)
    content = source._files()["tokenizer.json"].decode()
    tokenizer = HuggingFaceTokenizer(content, source.special_tokens, chat_template=CHAT)
    backbone = Decoder(SIZE, tokenizer.vocabulary_size, position="rotary", norm="rms_norm")
    return LanguageModel(backbone, tokenizer=tokenizer, end_id=tokenizer.end_id)


def classifier(folder):
    """A tokenizer of a Hugging Face folder, whose template is [CLS] text [SEP]."""
    WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "the", "sat", "##s"]).save(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    model = SequenceClassifier(Encoder(SIZE, 10), num_classes=3)
    model.tokenizer = from_huggingface(folder)
    return model


def listener():
    """Audio samples as inputs; the spectrogram is part of the graph."""
    whisper = Whisper(SIZE, vocabulary_size=40, num_mel_bins=5, num_frames=12, max_sequence_length=MAX_LENGTH)
    backbone = with_front_end(whisper, LogMel.whisper(num_mel_bins=5, num_samples=12 * 160))
    return LanguageModel(backbone, start_id=1, end_id=END_IDS["listener"], head_bias=True)


def randomize(model):
    """Sets weights with which the texts vary; an untrained model repeats one token."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        is_matrix = len(weight.shape) > 1
        weight.assign(rng.normal(0, 0.8, weight.shape) if is_matrix else weight + rng.normal(0, 0.1, weight.shape))
    return model


def _llama(out):
    options = GenerationOptions(whole_graph=False, static_length=16, prefill_buckets=BUCKETS)
    return _export(llama, out / "llama", generation=options)


CASES = {
    "gpt": lambda out: _export(gpt, out / "gpt", generation=GenerationOptions(prefill_buckets=BUCKETS, chunk_length=4)),
    "translator": lambda out: _export(translator, out / "translator"),
    "llama": _llama,
    "mistral": lambda out: _export(
        mistral, out / "mistral", generation=GenerationOptions(prefill_buckets=BUCKETS, chunk_length=4)
    ),
    "rounded": lambda out: _export(rounded, out / "rounded", generation=GenerationOptions(prefill_buckets=BUCKETS)),
    "latent": lambda out: _export(latent, out / "latent", generation=GenerationOptions(prefill_buckets=BUCKETS)),
    "yoco": lambda out: _export(yoco, out / "yoco", generation=GenerationOptions(prefill_buckets=BUCKETS)),
    "transformer_xl": lambda out: _export(transformer_xl, out / "transformer_xl"),
    "recurrent_memory": lambda out: _export(
        recurrent_memory, out / "recurrent_memory", generation=GenerationOptions(prefill_buckets=BUCKETS)
    ),
    "rwkv": lambda out: _export(rwkv, out / "rwkv"),
    "talker": lambda out: _export(talker, out / "talker", generation=GenerationOptions(whole_graph=False)),
    "classifier": lambda out: _export(
        lambda: classifier(out / "bert"), out / "classifier", formats=["saved_model", "onnx"]
    ),
    "listener": lambda out: _export(listener, out / "listener"),
    "serve": lambda out: _export(gpt, out / "serve", formats=["saved_model"], generation=False),
}

# Sound, and other forms of a cache: exhaustive tests ask for them.
EXHAUSTIVE = ("listener", "mistral", "rounded", "latent", "yoco", "transformer_xl", "recurrent_memory")


def _export(make, target, formats=DEFAULT_FORMATS, **options):
    model = randomize(make())
    model.save(target.with_suffix(".keras"))
    return {"report": export(model, target, formats, options=ExportOptions(**options)).to_dict()}


def main(out):
    cases = {name: functools.partial(case, out) for name, case in CASES.items()}
    run_cases(out, cases, after=keras.backend.clear_session, exhaustive=EXHAUSTIVE)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
