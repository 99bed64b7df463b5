"""Training of each architecture against a plain Transformer of about the same size, with the same data, steps and optimizer.

    python benchmarks/architectures.py --data-dir DIR --json architectures.json
    python benchmarks/architectures.py --data-dir DIR --tasks text images --models retnet crate --steps 1000
    python benchmarks/architectures.py --data-dir DIR --smoke           # smoke test: a few steps each

DIR contains tinyshakespeare/input.txt, multi30k/train.en.gz (and others), cifar10_jpeg_subset/train.zip and test.zip, and
sentence_cls/rt-polarity.all (and others). The tasks are characters of Tiny Shakespeare, image classification, English to
German translation, and sentences with a retrieval database; see `architecture_tasks.py`. Models are trained by `model.fit`
with AdamW, warm-up and cosine decay, at the same learning rate. The plain Transformer is trained with two seeds; smaller
differences than that between the two are not significant.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import math
import pathlib
import statistics
import time

import keras
import numpy as np
from architecture_tasks import TASKS
from measure import Table, versions

from keras_transformer import models, training
from keras_transformer.blocks import DeepNormResidual
from keras_transformer.feedforward import MixtureOfExperts, TopKRouter, ternary_twin

TEXT_SIZE = models.Size(num_layers=4, hidden_dim=128, num_heads=4, intermediate_dim=512)
IMAGE_SIZE = models.Size(num_layers=4, hidden_dim=96, num_heads=4, intermediate_dim=192)
SENTENCE_SIZE = models.Size(num_layers=3, hidden_dim=96, num_heads=3, intermediate_dim=384)
PAIR_SIZE = models.Size(num_layers=2, hidden_dim=128, num_heads=4, intermediate_dim=256)
PLAIN = "transformer"
# Shorter than the sequences of 64 characters, so that windows, segments and memories have an effect.
SEGMENT = 16


def switch(size, activation):
    """Returns eight experts, one per token, each as wide as the feed-forward layer that they replace."""
    router = TopKRouter(8, top_k=1, capacity_factor=1.25)
    return MixtureOfExperts(size.intermediate_dim, router, gated=False, activation=activation)


def mixtral(size):
    """Returns eight gated experts, two per token, with the total cost of the feed-forward layer that they replace."""
    return MixtureOfExperts(size.intermediate_dim // 3, TopKRouter(8, top_k=2))


def of_text(model=models.Decoder, size=TEXT_SIZE, **options):
    return lambda task: model(size, task.vocabulary_size, **options)


def of_images(model=models.ViT, size=IMAGE_SIZE, **options):
    return lambda task: model(size, 4, task.image_size, **{"class_token": False, **options})


def of_pairs(model=models.Transformer, size=PAIR_SIZE, **options):
    return lambda task: model(size, task.vocabulary_size, **{"dropout": 0.1, **options})


def ternary(build):
    """Returns the same network with ternary projections."""
    return lambda task: ternary_twin(build(task))


def swin(task):
    size = models.SwinSize(56, num_layers=(2, 2), num_heads=(4, 4))
    return models.Swin(size, 4, task.image_size, window_size=4, mlp_ratio=2.0, stochastic_depth=0.0)


def rednet(task):
    return models.RedNet((1, 1), task.image_size, hidden_dim=64, group_channels=16)


def kosmos(task):
    """Returns a decoder over 16 image tokens and a question; the output at the question is classified."""
    size = IMAGE_SIZE._replace(num_layers=2)
    vision = models.ViT(size, 4, task.image_size, class_token=False)
    backbone = models.Kosmos(size, 3, vision, begin_image_id=1, num_image_tokens=16)
    images = keras.Input((task.image_size, task.image_size, 3), name="images")
    text = keras.ops.cast(keras.ops.zeros_like(images[:, :18, 0, 0]), "int32") + np.array([[1, *[0] * 16, 2]], "int32")
    inputs = {"images": keras.ops.expand_dims(images, 1), "token_ids": text, "padding_mask": text >= 0}
    return keras.Model(images, backbone(inputs)[:, -1:])


def retro(task):
    found = {"chunk_size": task.chunk_size, "num_neighbors": task.num_neighbors, "retrieval_layers": (2, 3)}
    encoder = models.Size(num_layers=1, hidden_dim=64, num_heads=2, intermediate_dim=128)
    return models.RETRO(SENTENCE_SIZE, task.vocabulary_size, encoder_size=encoder, position="rotary", **found)


def bahdanau(task):
    width = PAIR_SIZE.hidden_dim
    size = models.BahdanauSize(width, 5 * width // 4, alignment_dim=width, readout_dim=width)
    return models.Bahdanau(size, task.vocabulary_size, tie_embeddings=True, dropout=0.1)


MODELS = {
    "text": {
        PLAIN: of_text(max_sequence_length=64),
        "rotary": of_text(position="rotary"),
        "rezero": of_text(residual="rezero", max_sequence_length=64),
        "deepnorm": of_text(residual="deepnorm", max_sequence_length=64),
        "residual": of_text(residual="residual", max_sequence_length=64),
        "albert": of_text(num_block_groups=1, max_sequence_length=64),
        "switch": of_text(feedforward=switch(TEXT_SIZE, "gelu_tanh"), max_sequence_length=64),
        "mixtral": of_text(feedforward=mixtral(TEXT_SIZE), max_sequence_length=64),
        "bitnet": ternary(of_text(max_sequence_length=64)),
        # Values of twice the width, and a gate; the feed-forward layer is narrower in return.
        "retnet": of_text(models.RetNet, TEXT_SIZE._replace(intermediate_dim=256)),
        "rwkv": of_text(models.RWKV),
        "s4": of_text(models.S4Model),
        "transformer_xl": of_text(models.TransformerXL, segment_length=SEGMENT, memory_length=SEGMENT),
        "recurrent_memory": of_text(models.RecurrentMemory, segment_length=SEGMENT, num_memory_tokens=4),
        "yoco": of_text(models.YOCO, window=SEGMENT),
    },
    "images": {
        PLAIN: of_images(),
        "swin": swin,
        # The dictionary of CRATE has the width of the tokens, and a block has three matrices: the tokens are wider.
        "crate": of_images(models.CRATE, models.Size(4, 160, 4, 160)),
        "rednet": rednet,
        "kosmos": kosmos,
        "rezero": of_images(residual="rezero"),
        "deepnorm": of_images(residual=DeepNormResidual.of_stack(IMAGE_SIZE.num_layers)),
        "switch": of_images(feedforward=switch(IMAGE_SIZE, "gelu")),
        "mixtral": of_images(feedforward=mixtral(IMAGE_SIZE)),
        "bitnet": ternary(of_images()),
    },
    "translation": {
        PLAIN: of_pairs(residual="pre"),
        "post_norm": of_pairs(),
        "deepnorm": of_pairs(residual="deepnorm"),
        "residual": of_pairs(residual="residual"),
        "lite_transformer": of_pairs(models.LiteTransformer, models.Size(3, 128, 4, 128), residual="pre"),
        "evolved_transformer": of_pairs(models.EvolvedTransformer, models.EvolvedSize(1, 1, 128, 4)),
        "bahdanau": bahdanau,
    },
    "sentences": {
        # As many parameters as RETRO with its neighbor encoder and cross-attention.
        PLAIN: of_text(size=SENTENCE_SIZE._replace(intermediate_dim=592), position="rotary"),
        "retro": retro,
    },
}


class Clock(keras.callbacks.Callback):
    """Median step time, without the first tenth of the steps, in which graphs are traced."""

    def on_train_begin(self, logs=None):
        self._ends = []

    def on_train_batch_end(self, batch, logs=None):
        self._ends.append(time.perf_counter())

    @property
    def milliseconds(self):
        ends = self._ends[len(self._ends) // 10 :]
        return round(statistics.median(after - before for before, after in zip(ends, ends[1:], strict=False)) * 1e3, 1)


def train(task, build, steps, seed):
    """Trains and evaluates one model; returns a part of a row."""
    keras.utils.set_random_seed(seed)
    model = task.with_head(build(task))
    schedule = training.WarmupCosine(task.learning_rate, max(1, steps // 10), steps, 0.1)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05, beta_2=0.99, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embedding"])
    model.compile(optimizer, jit_compile=task.jit_compile, **task.compile_options())
    clock, start = Clock(), time.perf_counter()
    # The batches are already shuffled.
    model.fit(
        task.batches(model, steps, seed), steps_per_epoch=steps, epochs=1, callbacks=[clock], shuffle=False, verbose=0
    )
    return {
        "figure": round(task.figure(model), 4),
        "parameters": sum(math.prod(weight.shape) for weight in model.trainable_weights),
        "ms_a_step": clock.milliseconds,
        "seconds": round(time.perf_counter() - start, 1),
    }


def verdict(task, figure, plain, spread):
    """Returns whether a score is better, worse or within the seed difference of the plain Transformer."""
    gain = plain - figure if task.lower_is_better else figure - plain
    if abs(gain) <= spread:
        return "as good"
    return "better" if gain > 0 else "worse"


def compare(task, names, options, table):
    """Adds the rows of one task: the plain Transformer with two seeds, then the others."""
    steps, builders = options.steps or (4 if options.smoke else task.steps), MODELS[task.name]
    row = {"task": task.name, "unit": task.unit}
    plain = [train(task, builders[PLAIN], steps, options.seed + offset) for offset in (0, 1)]
    for offset, result in enumerate(plain):
        table.add(**row, model=PLAIN, seed=options.seed + offset, **result)
    spread = abs(plain[0]["figure"] - plain[1]["figure"])
    for name in builders:
        if name == PLAIN or (names and name not in names):
            continue
        try:
            result = train(task, builders[name], steps, options.seed)
        except Exception as error:  # An error of one model must not stop the others.
            if options.smoke:
                raise
            table.add(**row, model=name, seed=options.seed, verdict=f"failed: {str(error):.150}")
            continue
        said = verdict(task, result["figure"], plain[0]["figure"], spread)
        gain = round(result["figure"] - plain[0]["figure"], 4)
        time_ratio = round(result["ms_a_step"] / plain[0]["ms_a_step"], 2)
        table.add(**row, model=name, seed=options.seed, **result, to_plain=gain, time_ratio=time_ratio, verdict=said)
        keras.backend.clear_session()
    table.note(f"{task.name}: {task.description}, {steps} steps, learning rate {task.learning_rate}.")


def parse(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted({name for builders in MODELS.values() for name in builders})
    parser.add_argument("--data-dir", type=pathlib.Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    parser.add_argument(
        "--models", nargs="+", choices=names, metavar="NAME", help="in addition to the plain one; default: all"
    )
    parser.add_argument("--steps", type=int, help="training steps; default: those of the task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="smoke test: a few steps on little data")
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    return parser.parse_args(given)


def main(given=None):
    options = parse(given)
    table = Table("Architectures against a plain Transformer", versions("keras-transformer", "keras", "tensorflow"))
    table.note(
        "to_plain: the score minus that of the plain Transformer; verdict: whether this exceeds the seed difference."
    )
    table.note("time_ratio: step time / that of the plain Transformer.")
    try:
        for name in options.tasks:
            compare(TASKS[name](options.data_dir, options.smoke), options.models, options, table)
    finally:
        table.finish(options.json)


if __name__ == "__main__":
    main()
