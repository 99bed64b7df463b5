"""Writes `whisper/`, `whisper_128/`, `nested_audio/` and `audio.npz`: what transformers makes of three recordings.

Needs transformers and torch; run from the root of the repository: `python tests/data/processors/make_audio.py`.
"""

import json
from pathlib import Path

import numpy as np
from transformers import WhisperFeatureExtractor

HERE = Path(__file__).parent
EXTRACTORS = {"whisper": WhisperFeatureExtractor(), "whisper_128": WhisperFeatureExtractor(feature_size=128)}
# Half a second, so that the file stays small.
SAMPLES = 8000


def recordings():
    """int16: tones and noise, shorter than half a second; a loud tone over a very faint one, longer; clicks in silence."""
    generator = np.random.default_rng(0)
    seconds = np.arange(9137) / 16_000
    tones = sum(np.sin(2 * np.pi * pitch * seconds) / rank for rank, pitch in enumerate((220, 440, 1234, 5000), 1))
    mixed = 0.2 * tones * np.exp(-6 * seconds) + 0.02 * generator.standard_normal(len(seconds))
    loud = 0.9 * np.sin(2 * np.pi * 700 * seconds) + 0.0004 * np.sin(2 * np.pi * 3100 * seconds)
    clicks = np.zeros(len(seconds))
    clicks[[0, 1000, 7999]] = 0.8, -0.5, 0.3
    return {
        name: np.round(samples * 32767).astype("int16")
        for name, samples in (("mixed", mixed[:5011]), ("loud", loud), ("clicks", clicks[:8000]))
    }


def main():
    content = recordings()
    for kind, extractor in EXTRACTORS.items():
        (HERE / kind).mkdir(exist_ok=True)
        text = json.dumps(json.loads(extractor.to_json_string()), indent=1, sort_keys=True)
        (HERE / kind / "preprocessor_config.json").write_text(text + "\n")
        for name, samples in recordings().items():
            if kind == "whisper" or name == "mixed":
                waves = samples.astype("float32") / 32768
                found = extractor(waves, sampling_rate=16_000, max_length=SAMPLES, return_tensors="np")
                content[f"{kind}/{name}"] = found["input_features"][0].T
    nested = {
        "feature_extractor": json.loads(EXTRACTORS["whisper"].to_json_string()),
        "processor_class": "WhisperProcessor",
    }
    (HERE / "nested_audio").mkdir(exist_ok=True)
    (HERE / "nested_audio" / "processor_config.json").write_text(json.dumps(nested, indent=1, sort_keys=True) + "\n")
    np.savez_compressed(HERE / "audio.npz", **content)


if __name__ == "__main__":
    main()
