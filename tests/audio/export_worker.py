"""Exports spectrograms and a step of speech in a process of its own, as converters leak: `export_worker.py OUT`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer import models, tasks
from keras_transformer.audio import ConvolutionalPosition, FeatureEncoder, LogMel, SoundNormalization
from keras_transformer.export import ExportOptions, export

DATA = np.load(pathlib.Path(__file__).parents[1] / "data" / "processors" / "audio.npz")
LAYERS = {
    "filled": (None, lambda: LogMel.whisper(80, 8000)),
    "fixed": (8000, lambda: LogMel.whisper(128, None)),
    "dynamic": (None, lambda: LogMel(40, 8000, 200, 80, 256, "hamming", (20.0, 3800.0), "htk", "natural")),
    "normalized": (None, lambda: keras.Sequential([LogMel(40, 8000, 200, 80), SoundNormalization()])),
    "unpadded": (None, lambda: LogMel(23, frame_length=320, log="decibel", padding=None)),
}


def export_step(out):
    """With two recordings, what the whole model gives for them, and the state at their first chunk."""
    keras.utils.set_random_seed(0)
    backbone = models.StreamingWav2Vec2(
        models.Size(1, 16, 2, 24),
        chunk_length=3,
        chunks_before=2,
        feature_encoder=FeatureEncoder((6, 8), kernel_sizes=(6, 3), strides=(4, 3), norm="layer"),
        position=ConvolutionalPosition(5, 2, padding="causal"),
    )
    model = tasks.SpeechRecognizer(backbone, 5, blank_id=1)
    steps = models.Chunkwise(model)
    export(steps.to_model(), out / "step")
    mask = np.arange(8 * steps.chunk_samples + steps.num_lead_samples) < np.array([[283], [170]])
    samples = np.random.default_rng(0).normal(size=mask.shape).astype("float32")
    logits = model.predict({"samples": samples, "padding_mask": mask}, verbose=0)
    state = {f"state/{name}": np.asarray(x) for name, x in steps.begin(samples[:, : steps.num_lead_samples]).items()}
    np.savez(out / "step.npz", samples=samples, padding_mask=mask, logits=logits, size=steps.chunk_samples, **state)


def main(out):
    export_step(out)
    recordings = {name: DATA[name].astype("float32")[None] / 32768 for name in ("mixed", "loud", "clicks")}
    for name, (samples, make) in LAYERS.items():
        layer = make()
        # Without a limit to the range, what a pure tone leaves in the other filters is rounding alone.
        names = recordings if getattr(layer, "normalization", None) else ("mixed",)
        model = keras.Sequential([keras.Input((samples,), name="samples"), layer])
        probes = [{"samples": np.repeat(each[:, :samples], 2, axis=0)} for each in map(recordings.get, names)]
        probes = [probe for probe in probes if samples is None or probe["samples"].shape[1] == samples]
        # A loud tone is among them: float32 cannot do better in its empty filters.
        export(model, out / name, probes=probes, options=ExportOptions(tolerance=1e-4))
        arrays = {key: np.asarray(layer(each))[0] for key, each in recordings.items() if key in names}
        np.savez(out / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
