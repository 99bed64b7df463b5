"""Trains a small Transformer to classify spoken digits from raw samples, and exports it to three runtimes.

    python examples/spoken_digits.py --data-dir DIR             # DIR/recordings.zip, or a folder DIR/recordings of WAVs
    python examples/spoken_digits.py                            # downloads the Free Spoken Digit Dataset
    python examples/spoken_digits.py --held-out jackson         # trains on the other five speakers, tests on this one
    python examples/spoken_digits.py --held-out each            # six trainings, each holds out one speaker
    python examples/spoken_digits.py --smoke                    # smoke test: a few steps

The data set has 3,000 recordings of 6 speakers at 8 kHz (github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0).
The official split tests on the first five of the fifty recordings of each digit by each speaker, so all test speakers are
in the training set. `--held-out` tests on a speaker that is not.

One second of samples is converted to 100 log-mel frames and, by two convolutions, to 50 tokens, followed by Transformer
blocks: `models.WhisperEncoder`. The spectrogram and its normalization are part of the graph, so all three files take
samples. Augmentation changes the speed, shifts the sound and adds noise; spectrograms are stretched along the frequency
axis, filtered randomly and masked.

Accuracy on the official split is 99.0 % of 300. With `--epochs 20` and held-out speakers it is 60.8 % for george, 77.0 for
jackson, 93.2 for lucas, 73.2 for nicolas, 93.4 for theo and 91.2 for yweweler, from one training each; the mean is 81.5.
Five speakers are a small training set.

Model selection: one speaker is about 20 dB softer than most, one recorded in silence, one through a high-pass filter.
Therefore the loudness is normalized over the frames that contain sound; the method was selected by a kernel regression on
the spectrograms of all speakers except george. The augmentation was fixed first, and then compared on lucas, nicolas and
jackson as held-out speakers, 12 epochs, without george: a mean of 77.3 % for this configuration, 78.7 without stretching
and filters, 61.6 with about twice the strength. The figures above were computed afterwards. Known before were those of a
front end without normalization, stretching and filters: 41.8 for george, 85.0 for jackson.

The script writes to `--out`: `model.keras`, `history.json` and `bundle/`.
"""

import argparse
import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import audio, models, tasks
from keras_transformer.export import ExportOptions, export, load
from keras_transformer.training import WarmupCosine

ADDRESS = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/26eb9aaf76e81b692f806f9140c2d2777410d7a1.zip"
NAME = re.compile(r"(?:^|/)recordings/(?P<digit>\d)_(?P<speaker>\w+)_(?P<index>\d+)\.wav$")
SAMPLE_RATE = 8000
NUM_SAMPLES = 8000
NUM_MEL_BINS = 40
NUM_FRAMES = 100
SIZE = models.Size(num_layers=3, hidden_dim=64, num_heads=4, intermediate_dim=128)
SMOKE_SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=32)
DROPOUT = 0.05
WEIGHT_DECAY = 0.05
TEST_INDICES = 5


class Recordings(NamedTuple):
    """Arrays with one entry per recording: samples, digit, speaker, and index among those of the speaker and digit."""

    samples: np.ndarray
    digits: np.ndarray
    speakers: np.ndarray
    indices: np.ndarray

    def where(self, chosen: np.ndarray) -> "Recordings":
        return Recordings(*(array[chosen] for array in self))


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    recordings = read(arguments.data_dir)
    speakers = sorted(set(recordings.speakers))
    if arguments.held_out is None:
        is_test = recordings.indices < TEST_INDICES
        model, history = train(recordings.where(~is_test), arguments)
        test = recordings.where(is_test)
        print(f"official split: {score(model.predict(test.samples, verbose=0), test)}", flush=True)
        finish(model, history, test, arguments)
        return
    figures = {}
    for speaker in speakers if arguments.held_out == ["each"] else arguments.held_out:
        is_test = recordings.speakers == speaker
        if not is_test.any():
            raise SystemExit(f"{speaker!r} is none of the speakers: {', '.join(speakers)}")
        model, _ = train(recordings.where(~is_test), arguments)
        test = recordings.where(is_test)
        figures[speaker] = accuracy(model.predict(test.samples, verbose=0), test)
        print(f"without {speaker}: {figures[speaker]:.2%} of {len(test.digits)} recordings of {speaker}", flush=True)
    print(f"mean of {len(figures)}: {np.mean(list(figures.values())):.2%}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder with recordings.zip or recordings/; default: download")
    parser.add_argument("--held-out", nargs="+", metavar="SPEAKER", help="held-out speakers, in turn, or 'each'")
    parser.add_argument("--out", type=Path, default=Path("spoken_digits"), help="output directory")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--smoke", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.epochs = 1
    return arguments


def read(data_dir: Path | None) -> Recordings:
    """Returns the `Recordings` of a folder or a zip file."""
    files = dict(sorted(find_files(data_dir)))
    if not files:
        raise SystemExit(f"{data_dir} holds no recordings named like recordings/7_jackson_32.wav")
    loaded = [audio.load_audio(io.BytesIO(data), SAMPLE_RATE) for data in files.values()]
    samples, _ = audio.stack_recordings(loaded, NUM_SAMPLES)
    parts = [part for name in files if (part := NAME.search(name))]
    digits, indices = (np.array([int(part[key]) for part in parts]) for key in ("digit", "index"))
    return Recordings(samples, digits, np.array([part["speaker"] for part in parts]), indices)


def find_files(data_dir: Path | None) -> Iterator[tuple[str, bytes]]:
    """Yields name and content of every recording."""
    if data_dir is not None and (data_dir / "recordings").is_dir():
        for path in (data_dir / "recordings").glob("*.wav"):
            if NAME.search(path.as_posix()):
                yield f"recordings/{path.name}", path.read_bytes()
        return
    path = data_dir / "recordings.zip" if data_dir else keras.utils.get_file("free-spoken-digits.zip", ADDRESS)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            found = NAME.search(name)
            if found:
                yield found[0], archive.read(name)


def build_model(size: models.Size) -> keras.Model:
    """Returns the model of samples to digit probabilities, with augmentation before and after the spectrogram."""
    encoder = models.WhisperEncoder(
        size, num_mel_bins=NUM_MEL_BINS, num_frames=NUM_FRAMES, dropout=DROPOUT, name="sound_encoder"
    )
    classifier = tasks.SequenceClassifier(encoder, 10, pooling="attention", dropout=DROPOUT, name="spoken_digits")
    spectrogram = audio.LogMel(
        NUM_MEL_BINS, SAMPLE_RATE, frame_length=200, hop_length=80, fft_length=256, num_samples=NUM_SAMPLES
    )
    front_end = keras.Sequential(
        [
            keras.Input((NUM_SAMPLES,)),
            audio.RandomSound(speed=0.15, shift=0.1, noise=0.05),
            spectrogram,
            audio.VocalTractPerturbation(0.1),
            audio.FilterAugment(0.5),
            audio.SoundNormalization(),
            audio.SpecAugment(1, frequency_mask=8, num_time_masks=1, time_mask=8),
        ],
        name="front_end",
    )
    return models.with_front_end(classifier, front_end, shape=(NUM_SAMPLES,))


def train(recordings: Recordings, arguments: argparse.Namespace) -> tuple[keras.Model, dict[str, Any]]:
    """Trains a model on recordings; returns it and its history."""
    keras.utils.set_random_seed(arguments.seed)
    model = build_model(SMOKE_SIZE if arguments.smoke else SIZE)
    steps = -(-len(recordings.digits) // arguments.batch_size) * arguments.epochs
    schedule = WarmupCosine(arguments.learning_rate, warmup_steps=steps // 10, total_steps=steps)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embedding"])
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    labels = keras.utils.to_categorical(recordings.digits, 10)
    start = time.perf_counter()
    options = {"batch_size": arguments.batch_size, "epochs": arguments.epochs, "verbose": 2}
    history = model.fit(recordings.samples, labels, **options).history
    seconds = time.perf_counter() - start
    print(f"trained {model.count_params():,} weights for {seconds:.0f} s", flush=True)
    return model, {**history, "seconds": seconds}


def accuracy(probabilities: np.ndarray, recordings: Recordings) -> float:
    return float(np.mean(probabilities.argmax(axis=-1) == recordings.digits))


def score(probabilities: np.ndarray, recordings: Recordings) -> str:
    return f"{accuracy(probabilities, recordings):.2%} of {len(recordings.digits)} recordings"


def finish(model: keras.Model, history: dict[str, Any], test: Recordings, arguments: argparse.Namespace) -> None:
    """Saves and exports the model, and prints the accuracy in every runtime."""
    model.save(arguments.out / "model.keras")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    probes = [{"samples": test.samples[:count]} for count in (1, 5)]
    options = ExportOptions(metadata={"sample_rate": SAMPLE_RATE})
    print(export(model, arguments.out / "bundle", probes=probes, options=options))
    expected = model.predict(test.samples, verbose=0).argmax(axis=-1)
    for backend in ("saved_model", "tflite", "onnx"):
        run = load(arguments.out / "bundle", backend)
        found = np.concatenate([run(test.samples[i : i + 50])["probabilities"] for i in range(0, len(expected), 50)])
        same = int((found.argmax(axis=-1) == expected).sum())
        print(f"{backend}: {score(found, test)}; {same} labels equal to those of Keras", flush=True)


if __name__ == "__main__":
    main()
