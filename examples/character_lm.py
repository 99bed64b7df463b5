"""Trains a character-level language model on Tiny Shakespeare and exports it to three runtimes.

    python examples/character_lm.py --data-dir DIR      # DIR/input.txt
    python examples/character_lm.py                     # downloads the 1.1 MB from the text's repository
    python examples/character_lm.py --quick             # smoke test: a few steps of a tiny model

The script prints the training curve, the loss on the whole validation split, and greedy and random samples of the Keras
model and of the exported bundle in each runtime. It writes to `--out`: `model.keras`, `curve.png`, `history.json` and
`bundle/` with a SavedModel, a TFLite and an ONNX file, which generate text:

    keras-transformer generate character_lm/bundle "ROMEO:" --sampler random --temperature 0.8

The configuration is the smallest of nanoGPT (github.com/karpathy/nanoGPT, README, "I only have a macbook"): 4 layers of
width 128, a context of 64 characters, 2,000 steps with batches of 12, no dropout, the last tenth of the text for
validation. nanoGPT reports 1.88 nats per character.
"""

import argparse
import json
import math
import resource
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import data, export, generation, models, plots, tasks, text, training

SIZE = models.Size(num_layers=4, hidden_dim=128, num_heads=4, intermediate_dim=512)
QUICK_SIZE = models.Size(num_layers=1, hidden_dim=32, num_heads=2, intermediate_dim=64)
CONTEXT = 64
BATCH_SIZE = 12
WARMUP_STEPS = 100
FINAL_FRACTION = 0.1
BETA_2 = 0.99
WEIGHT_DECAY = 0.1
CURVE_POINTS = 8
PROMPTS = ("ROMEO:", "First Citizen:", "To be, or not to be", "The king")

DATA_ADDRESS = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
    "/data/tinyshakespeare/input.txt"
)
DATA_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    splits = load_text(arguments.data_dir, arguments.quick)
    tokenizer = text.Characters.train([splits["training"]])
    token_ids = {name: np.array(tokenizer.encode(each), "int32") for name, each in splits.items()}
    print(", ".join(f"{name}: {len(ids):,} characters" for name, ids in token_ids.items()), flush=True)
    model = build_model(tokenizer, QUICK_SIZE if arguments.quick else SIZE)
    history = train(model, token_ids, arguments)
    history["validation_loss"] = evaluate(model, token_ids["validation"])
    model.save(arguments.out / "model.keras")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    curve = {name: history[name] for name in ("loss", "val_loss")}
    plots.training_curve(curve).savefig(arguments.out / "curve.png", dpi=150)
    print(export.export(model, arguments.out / "bundle"), flush=True)
    write_texts(model, arguments.out / "bundle")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of input.txt; default: download it")
    parser.add_argument("--out", type=Path, default=Path("character_lm"), help="output directory")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps = 2 * CURVE_POINTS
    return arguments


def load_text(data_dir: Path | None, quick: bool) -> dict[str, str]:
    """Returns a dict of split to text: the first nine tenths, and the rest."""
    path = data_dir / "input.txt" if data_dir else download()
    whole = path.read_text(encoding="utf-8")
    whole = whole[:20_000] if quick else whole
    cut = int(0.9 * len(whole))
    return {"training": whole[:cut], "validation": whole[cut:]}


def download(cache_dir: Path | None = None) -> Path:
    """Returns the path of the text; downloads it if it is missing and checks its hash."""
    return Path(
        keras.utils.get_file(
            "input.txt", DATA_ADDRESS, cache_subdir="tinyshakespeare", file_hash=DATA_SHA256, cache_dir=cache_dir
        )
    )


def build_model(tokenizer: text.Characters, size: models.Size) -> tasks.LanguageModel:
    """Returns the language model."""
    backbone = models.Decoder(size, tokenizer.vocabulary_size, max_sequence_length=CONTEXT)
    model = tasks.LanguageModel(backbone, tokenizer=tokenizer, name="character_lm")
    print(f"{model.count_params():,} parameters, {tokenizer.vocabulary_size} tokens", flush=True)
    return model


def train(
    model: tasks.LanguageModel, token_ids: dict[str, np.ndarray], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Trains the model; returns the history and the training time."""
    warmup = min(WARMUP_STEPS, arguments.steps // 2)
    schedule = training.WarmupCosine(arguments.learning_rate, warmup, arguments.steps, FINAL_FRACTION)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=WEIGHT_DECAY, beta_2=BETA_2, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(optimizer, training.MaskedCrossentropy(), metrics=[training.Perplexity()], jit_compile=True)
    steps = arguments.steps // CURVE_POINTS
    stream = data.language_model_batches(token_ids["training"], CONTEXT, BATCH_SIZE, steps, seed=arguments.seed)
    start, start_cpu = time.perf_counter(), cpu_seconds()
    history = model.fit(
        stream.repeat(),
        steps_per_epoch=steps,
        epochs=CURVE_POINTS,
        validation_data=validation_batches(token_ids["validation"]),
        shuffle=False,  # The batches are already shuffled.
        verbose=2,
    ).history
    wall, cpu = time.perf_counter() - start, cpu_seconds() - start_cpu
    print(f"trained for {wall / 60:.1f} minutes, {cpu / 60:.1f} minutes of CPU time, with {versions()}", flush=True)
    return {**history, "seconds": wall, "cpu_seconds": cpu}


def validation_batches(token_ids: np.ndarray) -> tf.data.Dataset:
    """Returns the whole split in windows of the context length, so that each character is predicted once."""
    return data.evaluation_batches(token_ids, CONTEXT, batch_size=64).epoch()


def evaluate(model: tasks.LanguageModel, token_ids: np.ndarray) -> float:
    """Prints and returns the loss in nats per character over all characters except the first; windows are independent."""
    loss = math.log(model.evaluate(validation_batches(token_ids), verbose=0, return_dict=True)["perplexity"])
    print(
        f"validation loss: {loss:.4f} nats per character, of {len(token_ids) - 1:,} in windows of {CONTEXT}", flush=True
    )
    return loss


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def versions() -> str:
    names = ("tensorflow", "keras", "onnxruntime", "ai-edge-litert")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def write_texts(model: tasks.LanguageModel, bundle: Path) -> None:
    """Generates text in Keras and in each runtime; prints the texts and the number of equal ones."""
    samplers = {"greedy": "greedy", "random": generation.Random(temperature=0.8, top_k=20)}
    for name, sampler in samplers.items():
        # Up to the context length of the longest prompt.
        texts = model.generate(list(PROMPTS), sampler=sampler, seed=0)
        for prompt, continuation in zip(PROMPTS, texts, strict=True):
            print(f"--- {name}: {prompt}{continuation}", flush=True)
        for backend in ("saved_model", "tflite", "onnx"):
            found = export.load(bundle, backend).generate(list(PROMPTS), sampler=sampler, seed=0)
            same = sum(ours == theirs for ours, theirs in zip(found, texts, strict=True))
            print(f"{name}, {backend}: {same} of {len(texts)} texts are those of Keras", flush=True)


if __name__ == "__main__":
    main()
