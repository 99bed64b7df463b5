"""Held-out loss of each architecture on Tiny Shakespeare, with the training budget of `examples/character_lm.py`.

    python benchmarks/shakespeare.py --json shakespeare.json
    python benchmarks/shakespeare.py --only gpt retnet --data-dir DIR           # DIR/input.txt

Size, data, steps, optimizer and learning rate are those of the example, nanoGPT's smallest configuration: 4 layers of width
128, 2,000 steps of 12 sequences of 64 characters. The loss is in nats per character over the held-out tenth, in independent
windows of 64.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import sys
import time

import keras
import numpy as np
from measure import Table, arguments, versions

from keras_transformer import attention, models, recurrence, tasks, text

sys.path.append(str(pathlib.Path(__file__).parents[1] / "examples"))
import character_lm as example

SEGMENT = example.CONTEXT // 4


def attending(template):
    """Returns a rotary decoder with an attention mechanism."""

    def build(size, vocabulary):
        mixer = attention.MultiHeadAttention(
            size.num_heads, size.hidden_dim // size.num_heads, mechanism=template(), position="rotary"
        )
        return models.Decoder(size, vocabulary, position=None, attention=mixer)

    return build


def mixing(template):
    """Returns a decoder with a mixer that takes the number of heads and their size, and needs no positions."""

    def build(size, vocabulary):
        mixer = template(size.num_heads, size.hidden_dim // size.num_heads)
        return models.Decoder(size, vocabulary, position=None, attention=mixer)

    return build


def with_options(model, **options):
    return lambda size, vocabulary: model(size, vocabulary, **options)


# Windows, segments and chunks are shorter than the sequences of 64 characters, so that states and memories have an effect.
ARCHITECTURES = {
    "gpt": with_options(models.Decoder, max_sequence_length=example.CONTEXT),
    "gpt_rotary": with_options(models.Decoder, position="rotary"),
    "local": attending(lambda: attention.LocalAttention(SEGMENT)),
    "linear": attending(attention.LinearAttention),
    "differential": attending(attention.DifferentialAttention),
    "latent": mixing(lambda heads, width: attention.MultiHeadLatentAttention(heads, 2 * width, width, width // 2)),
    "lightning": mixing(recurrence.LightningAttention),
    "gated_delta_net": mixing(recurrence.GatedDeltaNet),
    "kimi_delta": mixing(recurrence.KimiDeltaAttention),
    "mamba2": mixing(lambda heads, width: recurrence.Mamba2(2 * heads, width, state_dim=2 * width)),
    "infini": attending(lambda: attention.InfiniAttention(SEGMENT)),
    "retnet": models.RetNet,
    "rwkv": models.RWKV,
    "rwkv7": models.RWKV7,
    "s4": models.S4Model,
    "s4d": with_options(models.S4Model, state_space="s4d"),
    "transformer_xl": with_options(models.TransformerXL, segment_length=SEGMENT, memory_length=SEGMENT),
    "recurrent_memory": with_options(models.RecurrentMemory, segment_length=SEGMENT, num_memory_tokens=4),
    "yoco": with_options(models.YOCO, window=SEGMENT),
    "yoco_retention": with_options(models.YOCO, self_decoder="retention"),
}


def train(name, data, tokenizer, options):
    """Trains and evaluates one architecture; returns a row of the table."""
    keras.utils.set_random_seed(options.seed)
    size = example.QUICK_SIZE if options.tiny else example.SIZE
    model = tasks.LanguageModel(ARCHITECTURES[name](size, tokenizer.vocabulary_size), tokenizer=tokenizer)
    start = time.perf_counter()
    history = example.train(model, data, options)
    return {
        "architecture": name,
        "loss": round(example.evaluate(model, data["validation"]), 3),
        "train_loss": round(history["loss"][-1], 3),
        "parameters": model.count_params(),
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "cpu_minutes": round(history["cpu_seconds"] / 60, 1),
    }


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=pathlib.Path, help="folder of input.txt; default: download it")
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.tiny:
        options.steps = 2 * example.CURVE_POINTS
    return options


def main():
    options = parse()
    splits = example.load_text(options.data_dir, options.tiny)
    tokenizer = text.Characters.train([splits["training"]])
    data = {name: np.array(tokenizer.encode(each), "int32") for name, each in splits.items()}
    table = Table("Tiny Shakespeare, nats per character", versions("keras-transformer", "keras", "tensorflow"))
    for name in options.only:
        table.add(**train(name, data, tokenizer, options))
        keras.backend.clear_session()
    table.note(f"{options.steps} steps of {example.BATCH_SIZE} sequences of {example.CONTEXT} characters.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
