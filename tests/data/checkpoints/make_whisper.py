"""Makes the folders whisper-*: python tests/data/checkpoints/make_whisper.py (transformers 5.23, torch 2.13)."""

import numpy as np
import transformers
from seq2seq import build_speaking, inputs_of, source_and_target
from writing import HERE, build, run, write

CONFIG = {
    "vocab_size": 60,
    "num_mel_bins": 6,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 24,
    # Fewer than the positions of the decoder, so that neither is taken for the other.
    "max_source_positions": 9,
    "max_target_positions": 14,
    "activation_function": "silu",
    # Read, but not applied.
    "scale_embedding": True,
    "pad_token_id": 57,
    "bos_token_id": 57,
    "eos_token_id": 57,
    "decoder_start_token_id": 58,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}


def main():
    config = transformers.WhisperConfig(**CONFIG)
    generator = np.random.default_rng(0)
    shape = (3, 2 * CONFIG["max_source_positions"], CONFIG["num_mel_bins"])
    source = {"features": generator.normal(size=shape).astype("float32")}
    target = source_and_target(50)[1]
    model, answers = build_speaking(transformers.WhisperForConditionalGeneration, config, source)
    found = run(model, **inputs_of(source, target))
    write("whisper-ConditionalGeneration", model, {**source, **target}, {"logits": found["logits"]}, **answers)
    model = build(transformers.WhisperModel, config)
    found = run(model, **inputs_of(source, target))
    write("whisper-Model", model, {**source, **target}, {"tokens": found["last_hidden_state"]})
    write_classifier(generator)


def write_classifier(generator):
    """From sounds of unequal length, by way of transformers' own spectrogram of a second in ten frames."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=6, hop_length=1600, chunk_length=1)
    lengths = (2000, 1300)
    sounds = [generator.normal(0, 0.1, length).astype("float32") for length in lengths]
    features = extractor(sounds, sampling_rate=16000, return_tensors="np").input_features
    source = {"features": np.ascontiguousarray(features.transpose(0, 2, 1))}
    options = {"num_labels": 3, "classifier_proj_size": 10, "max_source_positions": 5}
    model = build(transformers.WhisperForAudioClassification, transformers.WhisperConfig(**{**CONFIG, **options}))
    found = run(model, **inputs_of(source))
    samples = np.stack([np.pad(sound, (0, max(lengths) - len(sound))) for sound in sounds])
    folder = "whisper-AudioClassification"
    write(folder, model, source, {"logits": found["logits"]}, samples=samples)
    extractor.save_pretrained(HERE / folder)


if __name__ == "__main__":
    main()
