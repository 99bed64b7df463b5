"""Trains a Transformer on English-German translation (Multi30k) and exports it to three runtimes.

    python examples/translation.py --data-dir DIR      # DIR/train.en.gz, DIR/train.de.gz, and so on
    python examples/translation.py                     # downloads the 1.3 MB from the data set's repository
    python examples/translation.py --quick             # smoke test: a few steps on a few sentences
    python examples/translation.py --architecture bahdanau      # recurrent networks with additive attention

The script prints the loss by epoch, then BLEU and chrF on the 1,000 sentences of test_2016_flickr, of the Keras model with
greedy decoding and beam search, and of the exported bundle in each runtime. It writes to `--out`: `model.keras`,
`curve.png`, `attention.png` (the cross-attention of a translation), `history.json` and `bundle/` with a SavedModel, a TFLite
and an ONNX file, which translate text to text.

The architecture is that of Wu et al. (arXiv 2105.14462), sufficient for these 29,000 sentences: 4 layers of width 128. The
inputs are raw cased text in subwords of a joint vocabulary. Normalization is before each sublayer (pre-norm), because the
validation loss falls faster than with post-norm (3.52 against 4.10 nats per token after 600 steps). The evaluated weights
are a moving average of the trained ones.

With `--checkpoint DIR` an interrupted training resumes at its epoch. A complete training is not repeated, and continues if
`--epochs` is larger.
"""

import argparse
import json
import resource
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import numpy as np
import sacrebleu
import tensorflow as tf
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from keras_transformer import attention, data, export, generation, models, plots, tasks, text, training

SIZE = models.Size(num_layers=4, hidden_dim=128, num_heads=4, intermediate_dim=256)
QUICK_SIZE = models.Size(num_layers=1, hidden_dim=32, num_heads=2, intermediate_dim=64)
VOCABULARY_SIZE = 6000
DROPOUT = 0.2
LABEL_SMOOTHING = 0.1
PEAK_LEARNING_RATE = 3e-3
WARMUP_STEPS = 600
AVERAGED_STEPS = 1000
TOKENS_PER_BATCH = 2048
# Five beams, as in Wu et al.
BEAM = generation.BeamSearch(num_beams=5)
MAX_NEW_TOKENS = 80

DATA_ADDRESS = (
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
# SHA-256 of each file.
DATA_FILES = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
}


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    splits = load_data(arguments.data_dir or download(), arguments.quick)
    tokenizer = text.SentencePiece.train([*splits["train"][0], *splits["train"][1]], VOCABULARY_SIZE)
    model = build_model(tokenizer, QUICK_SIZE if arguments.quick else SIZE, arguments.architecture)
    history = train(model, splits, tokenizer, arguments)
    hours, cpu_hours = (sum(history[name]) / 3600 for name in ("seconds", "cpu_seconds"))
    print(f"trained for {hours:.2f} hours, {cpu_hours:.2f} hours of CPU time, with {versions()}", flush=True)
    model.save(arguments.out / "model.keras")
    losses = {name: history[name] for name in ("loss", "val_loss")}
    plots.training_curve(losses).savefig(arguments.out / "curve.png", dpi=150)
    draw_attention(model, splits["test_2016_flickr"][0][0], arguments.out / "attention.png")
    scores = evaluate(model, splits["test_2016_flickr"], arguments.out / "bundle")
    (arguments.out / "history.json").write_text(json.dumps({**history, "scores": scores}, indent=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of train.en.gz and the others; default: download them")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="transformer")
    parser.add_argument("--out", type=Path, default=Path("translation"), help="output directory")
    parser.add_argument("--checkpoint", type=Path, help="directory of the training checkpoint")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs = 2
    return arguments


def download(cache_dir: Path | None = None) -> Path:
    """Returns the folder with the files; downloads missing files and checks the hashes."""
    for name, digest in DATA_FILES.items():
        path = keras.utils.get_file(
            name, DATA_ADDRESS + name, cache_subdir="multi30k", file_hash=digest, cache_dir=cache_dir
        )
    return Path(path).parent


def load_data(directory: Path, quick: bool) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Returns a dict of split to its English and German sentences."""
    splits = {}
    for split in ("train", "val", "test_2016_flickr"):
        pairs = list(data.read_pairs(*(directory / f"{split}.{language}.gz" for language in ("en", "de"))))
        splits[split] = tuple(zip(*(pairs[: 1000 if split == "train" else 50] if quick else pairs), strict=True))
        print(f"{split}: {len(splits[split][0])} pairs of sentences", flush=True)
    return splits


def transformer(size: models.Size, vocabulary_size: int) -> keras.Model:
    return models.Transformer(size, vocabulary_size, residual="pre", dropout=DROPOUT)


def bahdanau(size: models.Size, vocabulary_size: int) -> keras.Model:
    """Returns a model with about as many parameters as the Transformer; states are twice as wide as the embeddings."""
    width = size.hidden_dim
    wide = models.BahdanauSize(width, 2 * width, alignment_dim=width, readout_dim=width)
    return models.Bahdanau(wide, vocabulary_size, tie_embeddings=True, dropout=DROPOUT)


ARCHITECTURES = {"transformer": transformer, "bahdanau": bahdanau}


def build_model(
    tokenizer: text.SentencePiece, size: models.Size, architecture: str = "transformer"
) -> tasks.LanguageModel:
    """Returns the translation model."""
    backbone = ARCHITECTURES[architecture](size, tokenizer.vocabulary_size)
    model = tasks.LanguageModel(backbone, tokenizer=tokenizer, name="translation")
    print(f"{model.count_params():,} parameters, {tokenizer.vocabulary_size} subwords", flush=True)
    return model


def batches(
    tokenizer: text.SentencePiece, pairs: tuple[Sequence[str], Sequence[str]], **options: Any
) -> data.BatchStream:
    sources, targets = pairs
    sources = tokenizer.encode(sources, end=True)
    inputs, labels = data.sequence_to_sequence(sources, tokenizer.encode(targets, start=True, end=True))
    # Batches by length avoid padding; without XLA there is no compilation per length.
    return data.bucket_batches(
        inputs, labels, tokens_per_batch=TOKENS_PER_BATCH, multiple=1, growth=1, fill=False, **options
    )


def train(
    model: tasks.LanguageModel,
    splits: dict[str, tuple[Sequence[str], Sequence[str]]],
    tokenizer: text.SentencePiece,
    arguments: argparse.Namespace,
) -> dict[str, list[float]]:
    """Trains the model, with averaged weights at the end; returns the history."""
    stream = batches(tokenizer, splits["train"], seed=arguments.seed)
    # In a short training the average must not include the initial weights.
    averaged_steps = max(1, min(AVERAGED_STEPS, len(stream) * arguments.epochs // 8))
    optimizer = keras.optimizers.Adam(
        training.InverseSquareRoot(WARMUP_STEPS, peak_learning_rate=PEAK_LEARNING_RATE),
        beta_2=0.98,
        epsilon=1e-9,
        global_clipnorm=1.0,
        use_ema=True,
        ema_momentum=1 - 1 / averaged_steps,
    )
    # On CPUs XLA is not faster here, and would compile every length.
    model.compile(optimizer, training.MaskedCrossentropy(LABEL_SMOOTHING), jit_compile=False)
    # Validation uses the averaged weights, and the model has them after `fit`.
    callbacks = [Cost(), training.AveragedWeights()]
    if arguments.checkpoint:
        callbacks.insert(1, training.TrainingCheckpoint(arguments.checkpoint, stream))
    return model.fit(
        stream.repeat(),
        steps_per_epoch=len(stream),
        epochs=arguments.epochs,
        validation_data=batches(tokenizer, splits["val"], shuffle=False).epoch(),
        callbacks=callbacks,
        shuffle=False,  # The batches are already shuffled.
        verbose=2,
    ).history


class Cost(keras.callbacks.Callback):
    """Adds the time of each epoch to the logs."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.start = time.perf_counter(), cpu_seconds()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        logs["seconds"] = time.perf_counter() - self.start[0]
        logs["cpu_seconds"] = cpu_seconds() - self.start[1]


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def versions() -> str:
    names = ("tensorflow", "keras", "onnxruntime", "ai-edge-litert", "sacrebleu")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def draw_attention(model: tasks.LanguageModel, sentence: str, path: Path) -> None:
    """Plots the attention of each subword of a translation to the source, in the last layer."""
    tokenizer = model.tokenizer
    source = tokenizer.encode(sentence, end=True)
    target = tokenizer.encode(model.generate(sentence, max_new_tokens=MAX_NEW_TOKENS), start=True, end=True)
    inputs = {}
    for side, tokens in (("source", source), ("target", target[:-1])):
        inputs[f"{side}_token_ids"] = np.array([tokens], "int32")
        inputs[f"{side}_padding_mask"] = np.ones((1, len(tokens)), bool)
    maps = attention.attention_maps(model.backbone)(inputs)
    last = [name for name in maps if "cross_attention" in name or name == "decoder"][-1]
    # Each row is labeled with the subword that is predicted from it.
    words, said = ([tokenizer.decode([token]) or "·" for token in tokens] for tokens in (source, target[1:]))
    plots.attention({last: maps[last]}, tokens=words, query_tokens=said).savefig(path, dpi=150)


def evaluate(
    model: tasks.LanguageModel, test: tuple[Sequence[str], Sequence[str]], bundle: Path
) -> dict[str, dict[str, float]]:
    """Translates the test set in Keras and in each runtime of the exported bundle; prints and returns the scores."""
    sources, references = test
    options = {"max_new_tokens": MAX_NEW_TOKENS, "batch_size": 100}
    scores = {"keras, greedy": score(model.generate(sources, **options), references)}
    translations = model.generate(sources, sampler=BEAM, **options)
    scores["keras, beam"] = score(translations, references)
    print(export.export(model, bundle), flush=True)
    for backend in ("saved_model", "tflite", "onnx"):
        found = export.load(bundle, backend).generate(sources, sampler=BEAM, **options)
        same = sum(ours == theirs for ours, theirs in zip(found, translations, strict=True))
        scores[f"{backend}, beam"] = {**score(found, references), "same as keras": same}
    for name, each in scores.items():
        print(f"{name:18}" + "".join(f"  {key} {value:.4g}" for key, value in each.items()), flush=True)
    return scores


def score(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Returns BLEU as in publications on Multi30k, and BLEU and chrF of the raw text by sacreBLEU."""
    tokenized = sacrebleu.corpus_bleu(moses(translations), [moses(references)], tokenize="none", force=True)
    return {
        "BLEU (tokenized, lower-cased)": tokenized.score,
        "sacreBLEU": sacrebleu.corpus_bleu(translations, [references]).score,
        "chrF": sacrebleu.corpus_chrf(translations, [references]).score,
    }


def moses(sentences: Sequence[str]) -> list[str]:
    """Returns lower-cased text with normalized punctuation and Moses tokens (the data set's task1-tokenize.sh)."""
    normalizer, tokenizer = MosesPunctNormalizer("de"), MosesTokenizer("de")
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True) for line in sentences]


if __name__ == "__main__":
    main()
