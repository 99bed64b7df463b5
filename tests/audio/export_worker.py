"""Exports spectrograms in a process of its own, for converters leak: `export_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer.audio import LogMel, SoundNormalization
from keras_transformer.export import export

DATA = np.load(pathlib.Path(__file__).parents[1] / "data" / "processors" / "audio.npz")
LAYERS = {
    "filled": (None, lambda: LogMel.whisper(80, 8000)),
    "fixed": (8000, lambda: LogMel.whisper(128, None)),
    "dynamic": (None, lambda: LogMel(40, 8000, 200, 80, 256, "hamming", (20.0, 3800.0), "htk", "natural")),
    "normalized": (None, lambda: keras.Sequential([LogMel(40, 8000, 200, 80), SoundNormalization()])),
    "unpadded": (None, lambda: LogMel(23, frame_length=320, log="decibel", padding=None)),
}


def main(out):
    recordings = {name: DATA[name].astype("float32")[None] / 32768 for name in ("mixed", "loud", "clicks")}
    for name, (samples, make) in LAYERS.items():
        layer = make()
        # Without a limit to the range, what a pure tone leaves in the other filters is rounding alone.
        names = recordings if getattr(layer, "normalization", None) else ("mixed",)
        model = keras.Sequential([keras.Input((samples,), name="samples"), layer])
        probes = [{"samples": np.repeat(each[:, :samples], 2, axis=0)} for each in map(recordings.get, names)]
        probes = [probe for probe in probes if samples is None or probe["samples"].shape[1] == samples]
        # A loud tone is among them: float32 cannot do better in its empty filters.
        export(model, out / name, probes=probes, tolerance=1e-4)
        arrays = {key: np.asarray(layer(each))[0] for key, each in recordings.items() if key in names}
        np.savez(out / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
