"""Trains a small wav2vec 2.0 with CTC to write spoken strings of digits in letters, and exports it to three runtimes.

    python examples/spoken_numbers.py --data-dir DIR        # DIR/recordings.zip of the Free Spoken Digit Dataset
    python examples/spoken_numbers.py                       # downloads it
    python examples/spoken_numbers.py --held-out jackson    # trains on the other five speakers, tests on this one
    python examples/spoken_numbers.py --smoke               # smoke test: a few steps

Each example is a string of one to four digits by one speaker, "three seven one", put together from the recordings of the
data set (3,000 of 6 speakers at 8 kHz, github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0) with short pauses.
The model reads raw samples and gives a letter, a space or nothing for every frame of 15 ms; where a letter is spoken is
never said. Strings are of unequal length, padded in batches: padding changes neither loss nor text.

Texts are read from the logits by the best path, and by a beam search with a language model that knows the spelling of the
ten words: a letter that continues none of them is impossible.

The script writes to `--out`: `model.keras`, `history.json` and `bundle/`. `--resume` continues from `model.keras`.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import spoken_digits
import tensorflow as tf

from keras_transformer import audio, generation, load_model, models, tasks
from keras_transformer.export import ExportOptions, export, load
from keras_transformer.training import CTCLoss

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = sorted(set("".join(WORDS)))
# 0 is the blank, 1 the space.
IDS = {" ": 1, **{letter: index + 2 for index, letter in enumerate(LETTERS)}}
SYMBOLS = {index: letter for letter, index in IDS.items()}
MAX_DIGITS = 4
# Samples between two words, at most.
PAUSE = 1200
SIZE = models.Size(num_layers=3, hidden_dim=96, num_heads=4, intermediate_dim=192)
SMOKE_SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=32)
DROPOUT = 0.1


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    recordings = spoken_digits.read(arguments.data_dir)
    if arguments.held_out is None:
        is_test = recordings.indices < spoken_digits.TEST_INDICES
    else:
        is_test = recordings.speakers == arguments.held_out
    test = strings(recordings.where(is_test), np.random.default_rng(1))
    model, history = train(recordings.where(~is_test), arguments)
    print(f"test: {scores(model.predict(test[0], batch_size=32, verbose=0), test[1])}", flush=True)
    finish(model, history, test, arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder with recordings.zip or recordings/; default: download")
    parser.add_argument("--held-out", metavar="SPEAKER", help="speaker of the test; default: the official split")
    parser.add_argument("--out", type=Path, default=Path("spoken_numbers"), help="output directory")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--resume", action="store_true", help="continue from OUT/model.keras")
    parser.add_argument("--smoke", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.epochs = 1
    return arguments


def build_model(size: models.Size) -> keras.Model:
    """Returns the model of samples to the logits of letters."""
    encoder = audio.FeatureEncoder(
        (48, 64, 64), kernel_sizes=(20, 8, 5), strides=(8, 5, 3), norm="layer", use_bias=True
    )
    backbone = models.Wav2Vec2(
        size,
        feature_encoder=encoder,
        position=audio.ConvolutionalPosition(kernel_size=16, num_groups=4),
        span_masking=audio.SpanMasking(
            0.15, span_length=4, min_spans=0, feature_probability=0.1, feature_span_length=8
        ),
        residual="pre",
        dropout=DROPOUT,
    )
    return tasks.SpeechRecognizer(backbone, vocabulary_size=len(IDS) + 1, name="spoken_numbers")


def strings(recordings: spoken_digits.Recordings, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], list[str]]:
    """Returns the inputs of the model and the texts: every recording once, in strings of digits by one speaker."""
    sounds, texts = [], []
    for speaker in sorted(set(recordings.speakers)):
        order = rng.permutation(np.flatnonzero(recordings.speakers == speaker))
        while len(order):
            count = rng.integers(1, MAX_DIGITS + 1)
            chosen, order = order[:count], order[count:]
            parts = [np.zeros(rng.integers(0, PAUSE), "float32")]
            for index in chosen:
                pause = np.zeros(rng.integers(0, PAUSE), "float32")
                parts += [np.trim_zeros(recordings.samples[index], "b"), pause]
            sounds.append(np.concatenate(parts) * rng.uniform(0.7, 1.3))
            texts.append(" ".join(WORDS[recordings.digits[index]] for index in chosen))
    samples, lengths = audio.stack_recordings(sounds)
    mask = np.arange(samples.shape[1]) < lengths[:, None]
    samples = keras.ops.convert_to_numpy(audio.SampleNormalization(sample_rate=8000)(samples, padding_mask=mask))
    return {"samples": samples, "padding_mask": mask}, texts


class Batches(keras.utils.PyDataset):
    """Batches of new strings in every epoch, of similar lengths, each padded to its longest."""

    def __init__(self, recordings: spoken_digits.Recordings, arguments: argparse.Namespace) -> None:
        super().__init__()
        self._recordings = recordings
        self._size = arguments.batch_size
        self._is_small = arguments.smoke
        self._rng = np.random.default_rng(arguments.seed)
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        self._inputs, texts = strings(self._recordings, self._rng)
        self._labels = [[IDS[letter] for letter in text] for text in texts]
        order = np.argsort(self._inputs["padding_mask"].sum(axis=1), kind="stable")
        starts = range(0, len(order) - self._size + 1, self._size)
        self._rows = [order[start : start + self._size] for start in self._rng.permutation(starts)]
        self._rows = self._rows[:3] if self._is_small else self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        rows = self._rows[index]
        # Few sizes: each is traced once.
        longest = -(-int(self._inputs["padding_mask"][rows].sum(axis=1).max()) // 2000) * 2000
        inputs = {name: array[rows, :longest] for name, array in self._inputs.items()}
        labels = [self._labels[row] for row in rows]
        return inputs, keras.utils.pad_sequences(labels, padding="post", value=-100)


def train(
    recordings: spoken_digits.Recordings, arguments: argparse.Namespace
) -> tuple[keras.Model, dict[str, list[float]]]:
    """Trains a model on strings of recordings; returns it and its history."""
    keras.utils.set_random_seed(arguments.seed)
    saved = arguments.out / "model.keras"
    if arguments.resume:
        model = load_model(saved)
    else:
        model = build_model(SMOKE_SIZE if arguments.smoke else SIZE)
        optimizer = keras.optimizers.AdamW(arguments.learning_rate, weight_decay=0.01, global_clipnorm=1.0)
        model.compile(optimizer, CTCLoss(), jit_compile=False)
    start = time.perf_counter()
    batches = Batches(recordings, arguments)
    history = model.fit(batches, epochs=arguments.epochs, verbose=2).history
    print(f"trained {model.count_params():,} weights for {time.perf_counter() - start:.0f} s", flush=True)
    return model, history


def spelling(prefix: tuple[int, ...], token: int | None) -> float:
    """Returns the log-probability of a letter after others: 0 if it continues one of the words, else minus infinity."""
    word = "".join(SYMBOLS[index] for index in prefix).rpartition(" ")[2]
    if token is None or SYMBOLS[token] == " ":
        return 0.0 if word in WORDS else -math.inf
    return 0.0 if any(each.startswith(word + SYMBOLS[token]) for each in WORDS) else -math.inf


def read(logits: np.ndarray, spelled: bool = False) -> list[str]:
    """Returns the texts of logits; `spelled` as those of known words."""
    if spelled:
        results = generation.ctc_beam_search(logits, num_beams=8, language_model=spelling, language_weight=1.0)
        rows = [result[0].token_ids for result in results]
    else:
        rows = generation.ctc_greedy(logits)
    return ["".join(SYMBOLS[token] for token in row) for row in rows]


def scores(logits: np.ndarray, texts: list[str]) -> str:
    """Returns the error rates of texts read in both ways."""
    parts = []
    for name, spelled in (("best path", False), ("known words", True)):
        found = read(logits, spelled)
        words, letters = tasks.word_error_rate(found, texts), tasks.character_error_rate(found, texts)
        parts.append(f"{name}: {words:.1%} of words, {letters:.1%} of letters wrong")
    return f"{'; '.join(parts)}; {len(texts)} strings of {sum(len(text.split()) for text in texts)} digits"


def finish(model: keras.Model, history: dict[str, Any], test: Any, arguments: argparse.Namespace) -> None:
    """Saves and exports the model, and compares the texts that every runtime gives."""
    model.save(arguments.out / "model.keras")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    inputs = {name: array[:20] for name, array in test[0].items()}
    options = ExportOptions(metadata={"sample_rate": 8000, "letters": " " + "".join(LETTERS)})
    print(export(model, arguments.out / "bundle", options=options))
    expected = read(model.predict(inputs, verbose=0))
    for backend in ("saved_model", "tflite", "onnx"):
        found = read(load(arguments.out / "bundle", backend)(inputs)["logits"])
        same = sum(first == second for first, second in zip(found, expected, strict=True))
        print(f"{backend}: {same} of {len(expected)} texts equal to those of Keras", flush=True)


if __name__ == "__main__":
    main()
