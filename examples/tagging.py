"""Trains a tagger from scratch: English parts of speech (UD EWT) or entities in tweets (WNUT-17).

    python examples/tagging.py --dataset ewt --data-dir DIR       # DIR/en_ewt-ud-train.conllu, and so on
    python examples/tagging.py --dataset wnut17                   # downloads 2 MB
    python examples/tagging.py --dataset ewt --quick              # smoke test: a few steps

Words are given (gold tokens) and split into subwords. The model predicts the tag of the word for each subword, and the tag
of a word is the most likely one over all of its subwords. In training, words are split randomly in several ways (subword
regularization), which improves the accuracy on unseen words.

First the encoder is pretrained as a masked language model on the words of the training set, without the tags. Then it is
fine-tuned with a tagging head. `--pretraining-epochs 0` skips the pretraining; with `--pretrained FOLDER` several runs share
one pretrained encoder.

The script prints the accuracy over subwords on the development set by epoch, then the scores on the development and test
sets, accuracy over words for parts of speech and F1 over entities for WNUT-17, of the Keras model and of the exported
bundle in each runtime. It writes to `--out`: `model.keras`, `tokenizer/`, `history.json`, `curve.png` and `bundle/`.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import data, export, models, plots, tasks, text, training
from keras_transformer.text.batching import pad_batch

SIZE = models.Size(num_layers=2, hidden_dim=128, num_heads=4, intermediate_dim=256)
QUICK_SIZE = models.Size(num_layers=1, hidden_dim=32, num_heads=2, intermediate_dim=64)
# A small vocabulary splits many words, so that suffixes are learned.
VOCABULARY_SIZE = 4000
MAX_LENGTH = 256
# Number of random splits of each sentence, one per epoch on average; prediction uses the deterministic split.
NUM_SPLITS = 4
SPLIT_RATE = 0.15
# More than BERT's 15 %, for more labels per step in a short training.
MASKING = {"rate": 0.2, "whole_words": True}
DROPOUT = 0.1
HEAD_DROPOUT = 0.2
HIDDEN_TOKENS = 0.05
LABEL_SMOOTHING = 0.1
LEARNING_RATE = 1.5e-3
WEIGHT_DECAY = 0.05
TOKENS_PER_BATCH = 1024
# Batches by length have little padding; without XLA there is no compilation per length.
BUCKETS = {"multiple": 4, "growth": 1, "fill": False}

DATASETS = {
    "ewt": {
        "address": "https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/"
        "15d613d8447b3478787d4c278730a1e48a945efb/",
        # SHA-256 of each file.
        "files": {
            "en_ewt-ud-train.conllu": "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b",
            "en_ewt-ud-dev.conllu": "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6",
            "en_ewt-ud-test.conllu": "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd",
        },
        "columns": {"columns": (3,), "token_column": 1},
    },
    "wnut17": {
        "address": "https://raw.githubusercontent.com/leondz/emerging_entities_17/"
        "e52a2d2a71ac1a051ca2d532eef28653c5c02603/",
        "files": {
            "wnut17train.conll": "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
            "emerging.dev.conll": "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
            "emerging.test.annotated": "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
        },
        "columns": {"columns": (1,)},
    },
}


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    splits = read_splits(arguments)
    tags = sorted({tag for sentence in splits["train"] for tag in sentence.columns[0]})
    words = (" ".join(sentence.tokens) for sentence in splits["train"])
    tokenizer = text.WordPiece.train(words, VOCABULARY_SIZE, lowercase=False)
    size = QUICK_SIZE if arguments.quick else SIZE
    # The tag of a word depends on its neighbors, not on its absolute position: relative positions.
    backbone = models.Encoder(size, tokenizer.vocabulary_size, position="rotary", dropout=DROPOUT)
    pretrain(backbone, tokenizer, splits["train"], arguments)
    model = tasks.Tagger(backbone, len(tags), dropout=HEAD_DROPOUT, name="tagging")
    history = train(model, tokenizer, splits, tags, arguments)
    model.save(arguments.out / "model.keras")
    tokenizer.save(arguments.out / "tokenizer")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    plots.training_curve(history).savefig(arguments.out / "curve.png", dpi=150)
    evaluate(model, tokenizer, splits, tags, arguments.out / "bundle")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=DATASETS, default="ewt")
    parser.add_argument("--data-dir", type=Path, help="folder of the files; default: download them")
    parser.add_argument("--out", type=Path, default=Path("tagging"), help="output directory")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--pretraining-epochs", type=int, default=10)
    parser.add_argument("--pretrained", type=Path, help="folder of the pretrained encoder; created if missing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.pretraining_epochs = 2, min(arguments.pretraining_epochs, 1)
    return arguments


def read_splits(arguments: argparse.Namespace) -> dict[str, list[data.Sentence]]:
    """Returns a dict of "train", "dev" and "test" to lists of `data.Sentence`, with the tags as their only column."""
    dataset, splits = DATASETS[arguments.dataset], {}
    for split, (name, digest) in zip(("train", "dev", "test"), dataset["files"].items(), strict=True):
        path = (
            arguments.data_dir / name
            if arguments.data_dir
            else keras.utils.get_file(name, dataset["address"] + name, cache_subdir="tagging", file_hash=digest)
        )
        sentences = data.read_conll(path, **dataset["columns"])
        splits[split] = list(itertools.islice(sentences, 200 if arguments.quick else None))
    return splits


def encode(
    tokenizer: text.WordPiece, sentences: list[data.Sentence], tags: list[str] | None = None
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Returns token ids, the word index of each token, and, given tags, the labels: the tag of the word for each token."""
    ids, words = tokenizer.encode_words([sentence.tokens for sentence in sentences])
    ids, words = ([row[:MAX_LENGTH] for row in rows] for rows in (ids, words))
    if tags is None:
        return ids, words, []
    number = {tag: index for index, tag in enumerate(tags)}
    columns = (sentence.columns[0] for sentence in sentences)
    labels = [[number.get(column[word], -100) for word in row] for row, column in zip(words, columns, strict=True)]
    return ids, words, labels


def resplit(
    tokenizer: text.WordPiece, ids: list[list[int]], labels: list[list[int]], seed: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns token ids and labels of each sentence `NUM_SPLITS` times, with its words split randomly."""
    sampling = data.SubwordSampling(tokenizer, SPLIT_RATE)
    all_ids, all_labels = [], []
    for split in range(NUM_SPLITS):
        rows, sources = sampling(ids, seed=seed * NUM_SPLITS + split)
        all_ids += [row[:MAX_LENGTH] for row in rows]
        all_labels += [[row[source] for source in each[:MAX_LENGTH]] for row, each in zip(labels, sources, strict=True)]
    return all_ids, all_labels


def pretrain(
    backbone: keras.Model, tokenizer: text.WordPiece, sentences: list[data.Sentence], arguments: argparse.Namespace
) -> None:
    """Pretrains the encoder as a masked language model, or loads the weights of an earlier run."""
    weights = arguments.pretrained and arguments.pretrained / "encoder.weights.h5"
    if weights and weights.exists():
        backbone.load_weights(weights)
        return
    if not arguments.pretraining_epochs:
        return
    ids, _, _ = encode(tokenizer, sentences)
    ids, _ = resplit(tokenizer, ids, ids, arguments.seed)
    stream = data.bucket_batches({"token_ids": ids}, tokens_per_batch=TOKENS_PER_BATCH, seed=arguments.seed, **BUCKETS)
    stream = data.mask_tokens(stream, tokenizer, seed=arguments.seed, selected_positions=True, **MASKING)
    model = tasks.MaskedLanguageModel(backbone, selected_positions=True)
    fit(model, stream, arguments.pretraining_epochs)
    if weights:
        weights.parent.mkdir(parents=True, exist_ok=True)
        backbone.save_weights(weights)


def train(
    model: keras.Model,
    tokenizer: text.WordPiece,
    splits: dict[str, list[data.Sentence]],
    tags: list[str],
    arguments: argparse.Namespace,
) -> dict[str, list[float]]:
    """Trains the model on the tags; returns the history."""
    ids, _, labels = encode(tokenizer, splits["train"], tags)
    # Different from the seed of the pretraining and of its splits.
    ids, labels = resplit(tokenizer, ids, labels, arguments.seed + 1)
    stream = data.bucket_batches(
        {"token_ids": ids}, labels, tokens_per_batch=TOKENS_PER_BATCH, seed=arguments.seed, **BUCKETS
    )
    # The tag of a masked word must be predicted from its neighbors.
    stream = data.hide_tokens(stream, tokenizer, HIDDEN_TOKENS, whole_words=True, seed=arguments.seed)
    ids, _, labels = encode(tokenizer, splits["dev"], tags)
    held_out = data.bucket_batches(
        {"token_ids": ids}, labels, tokens_per_batch=TOKENS_PER_BATCH, shuffle=False, **BUCKETS
    )
    return fit(model, stream, arguments.epochs, LABEL_SMOOTHING, validation_data=held_out.epoch())


def fit(
    model: keras.Model, stream: data.BatchStream, epochs: int, label_smoothing: float = 0.0, **options: Any
) -> dict[str, list[float]]:
    """Trains with AdamW, warm-up, cosine decay and averaged weights; returns the history."""
    # A stream contains each sentence once per split.
    steps = max(1, len(stream) // NUM_SPLITS)
    schedule = training.WarmupCosine(LEARNING_RATE, warmup_steps=steps * epochs // 10, total_steps=steps * epochs)
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0, use_ema=True, ema_momentum=0.99
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss, accuracy = training.MaskedCrossentropy(label_smoothing), training.MaskedAccuracy(name="accuracy")
    model.compile(optimizer, loss, metrics=[accuracy], jit_compile=False)
    start = time.process_time()
    history = model.fit(
        stream.repeat(),
        steps_per_epoch=steps,
        epochs=epochs,
        shuffle=False,
        # Validation uses the averaged weights.
        callbacks=[keras.callbacks.SwapEMAWeights()],
        verbose=2,
        **options,
    ).history
    print(f"{model.name} trained for {(time.process_time() - start) / 60:.1f} minutes of CPU time", flush=True)
    return history


def evaluate(
    model: keras.Model, tokenizer: text.WordPiece, splits: dict[str, list[data.Sentence]], tags: list[str], bundle: Path
) -> None:
    """Prints the scores of the Keras model and the test scores of the bundle in each runtime."""
    inference = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)
    for split in ("dev", "test"):
        figure = score(lambda inputs: inference(inputs).numpy(), tokenizer, splits[split], tags)
        print(f"{split}: {figure}", flush=True)
    print(export.export(model, bundle, options=export.ExportOptions(metadata={"tags": tags})))
    for backend in ("saved_model", "tflite", "onnx"):
        runtime = export.load(bundle, backend)
        figure = score(lambda inputs, runtime=runtime: runtime(inputs)["logits"], tokenizer, splits["test"], tags)
        print(f"{backend}: {figure}", flush=True)


def tag_words(logits: np.ndarray, words: Sequence[int], count: int) -> np.ndarray:
    """Returns the most likely tag of each of `count` words: `argmax_k sum_t log softmax(logits_t)_k`, over its tokens t.

    A word without tokens gets the last tag.
    """
    logits = logits[: len(words)]
    logits = logits - logits.max(-1, keepdims=True)
    sums = np.zeros((count, logits.shape[-1]))
    np.add.at(sums, np.asarray(words, int), logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
    return np.where(np.isin(np.arange(count), words), sums.argmax(-1), logits.shape[-1] - 1)


def score(
    logits_of: Callable[[dict[str, np.ndarray]], np.ndarray],
    tokenizer: text.WordPiece,
    test: list[data.Sentence],
    tags: list[str],
) -> str:
    """Returns the accuracy over words or, for BIO tags, F1 over entities, as text."""
    found = []
    for start in range(0, len(test), 50):
        ids, words, _ = encode(tokenizer, test[start : start + 50])
        logits = logits_of(pad_batch(ids, tokenizer.pad_id))
        for sentence, row, indices in zip(test[start : start + 50], logits, words, strict=True):
            found.append([tags[tag] for tag in tag_words(row, indices, len(sentence.tokens))])
    expected = [sentence.columns[0] for sentence in test]
    if "O" in tags:
        scores = data.span_f1(expected, found)
        return f"F1 {scores.f1:.2%}, precision {scores.precision:.2%}, recall {scores.recall:.2%}"
    right = np.concatenate([np.array(said) == np.array(tag) for said, tag in zip(found, expected, strict=True)])
    return f"{right.mean():.2%} of {len(right)} words"


if __name__ == "__main__":
    main()
