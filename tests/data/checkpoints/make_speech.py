"""Makes the folders of speech: python tests/data/checkpoints/make_speech.py (transformers 5.23, torch 2.13).

Outputs at padded frames are NaN: nothing is said about them. Where transformers counts padding, in the norms over time of
the base model and in adapters, each recording is computed alone.
"""

import json

import numpy as np
import torch
import transformers
from writing import HERE, build, run, write

LENGTHS = (201, 110, 44)
CONFIG = {
    "vocab_size": 11,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_act": "silu",
    "feat_extract_activation": "relu",
    "conv_dim": [5, 6, 7],
    "conv_kernel": [7, 4, 3],
    "conv_stride": [4, 3, 2],
    "conv_bias": True,
    "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 3,
    "classifier_proj_size": 9,
    "mask_time_prob": 0.3,
    "mask_time_length": 3,
    "mask_time_min_masks": 1,
    "mask_feature_prob": 0.2,
    "mask_feature_length": 2,
    "mask_feature_min_masks": 1,
    "num_labels": 4,
    "pad_token_id": 3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
STABLE = {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}
LETTERS = ["E", "<s>", "</s>", "<pad>", "|", "<unk>", "T", "A", "O", "'", "N"]


def recordings(seed=0):
    """Raw samples, of unequal length, not normalized."""
    generator = np.random.default_rng(seed)
    return [generator.normal(0.1, 0.3, length).astype("float32") for length in LENGTHS]


def inputs(sounds):
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    batch = extractor(sounds, padding=True, sampling_rate=16000, return_tensors="np")
    return {"samples": batch["input_values"], "padding_mask": batch["attention_mask"].astype(bool)}


def frames_of(model, arrays):
    return model._get_feat_extract_output_lengths(torch.tensor(arrays["padding_mask"].sum(axis=1))).numpy()


def together(model, arrays, output, per_frame=True):
    """The output for a padded batch."""
    mask = arrays["padding_mask"].astype("int64")
    found = run(model, input_values=arrays["samples"], attention_mask=mask)[output].numpy()
    return hidden(found, frames_of(model, arrays)) if per_frame else found


def alone(model, arrays, output, per_frame=True):
    """The outputs of each recording without the others."""
    lengths = arrays["padding_mask"].sum(axis=1)
    rows = [
        run(model, input_values=samples[None, :length])[output].numpy()[0]
        for samples, length in zip(arrays["samples"], lengths, strict=True)
    ]
    if not per_frame:
        return np.stack(rows)
    longest = max(map(len, rows))
    return np.stack([np.pad(row, ((0, longest - len(row)), (0, 0)), constant_values=np.nan) for row in rows])


def hidden(found, lengths):
    return np.where((np.arange(found.shape[1]) < lengths[:, None])[:, :, None], found, np.nan)


def write_recognizer(kind, compute, **settings):
    """With a tokenizer and a feature extractor, the recordings before normalization, and greedy texts."""
    config = getattr(transformers, f"{kind}Config")(**{**CONFIG, **settings})
    model = build(getattr(transformers, f"{kind}ForCTC"), config)
    sounds = recordings()
    arrays = inputs(sounds)
    logits = compute(model, arrays, "logits")
    raw = np.stack([np.pad(sound, (0, max(LENGTHS) - len(sound))) for sound in sounds])
    folder = f"{kind.lower()}-CTC"
    write(folder, model, arrays, {"logits": logits}, recordings=raw)
    write_processor(folder, logits)


def write_processor(folder, logits):
    """The processor, and what it reads from the logits, in texts.json."""
    vocabulary = {letter: index for index, letter in enumerate(LETTERS)}
    (HERE / folder / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(HERE / folder / "vocab.json"))
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    tokenizer.save_pretrained(HERE / folder)
    extractor.save_pretrained(HERE / folder)
    ids = [np.nanargmax(row[~np.isnan(row[:, 0])], axis=-1) for row in logits]
    examples = ["TEN AT ONE", "NO' E", "TAN", "?AT"]
    texts = {
        "greedy": tokenizer.batch_decode(ids, skip_special_tokens=True),
        "encoded": {text: tokenizer(text)["input_ids"] for text in examples},
        "decoded": {text: tokenizer.decode(tokenizer(text)["input_ids"], group_tokens=False) for text in examples},
    }
    (HERE / folder / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")


def write_model(
    kind, name, compute, head="Model", output="last_hidden_state", ours="tokens", per_frame=True, **settings
):
    config = getattr(transformers, f"{kind}Config")(**{**CONFIG, **settings})
    model = build(getattr(transformers, f"{kind}{head}"), config)
    arrays = inputs(recordings())
    write(name, model, arrays, {ours: compute(model, arrays, output, per_frame)})


def write_pretraining(**settings):
    config = transformers.Wav2Vec2Config(**{**CONFIG, "num_hidden_layers": 1, **settings})
    model = build(transformers.Wav2Vec2ForPreTraining, config)
    arrays = inputs(recordings())
    names = {"predictions": "projected_states", "targets": "projected_quantized_states"}
    outputs = {ours: together(model, arrays, theirs) for ours, theirs in names.items()}
    write("wav2vec2-PreTraining", model, arrays, outputs)


def logits(head):
    return {"head": head, "output": "logits", "ours": "logits", "num_hidden_layers": 1}


def main():
    write_recognizer("Wav2Vec2", together, **STABLE)
    write_model("Wav2Vec2", "wav2vec2-Model", together, **STABLE, num_conv_pos_embeddings=5, adapter_attn_dim=5)
    write_model(
        "Wav2Vec2",
        "wav2vec2_adapter-Model",
        alone,
        add_adapter=True,
        num_hidden_layers=1,
        num_adapter_layers=2,
        adapter_kernel_size=2,
        adapter_stride=3,
        output_hidden_size=8,
        hidden_act="gelu",
        mask_time_prob=0.0,
        mask_feature_prob=0.0,
    )
    classifier = logits("ForSequenceClassification")
    write_model("Wav2Vec2", "wav2vec2-SequenceClassification", alone, **classifier, per_frame=False, conv_bias=False)
    write_model("Wav2Vec2", "wav2vec2-AudioFrameClassification", alone, **logits("ForAudioFrameClassification"))
    write_pretraining(
        **STABLE, num_codevectors_per_group=7, num_codevector_groups=3, codevector_dim=6, proj_codevector_dim=5
    )
    write_model("Hubert", "hubert-Model", together, **STABLE, conv_dim=[5, 6, 12], num_hidden_layers=1)
    write_model("Hubert", "hubert-SequenceClassification", together, **classifier, per_frame=False, **STABLE)
    write_model("Hubert", "hubert-CTC", alone, **logits("ForCTC"), feat_proj_layer_norm=False, mask_feature_prob=0.0)
    buckets = {"num_buckets": 8, "max_bucket_distance": 4}
    write_model("WavLM", "wavlm-Model", together, **STABLE, **buckets)
    write_model("WavLM", "wavlm-CTC", alone, **logits("ForCTC"), **buckets, num_attention_heads=2)
    write_model("WavLM", "wavlm-SequenceClassification", together, **classifier, per_frame=False, **STABLE, **buckets)
    frames = logits("ForAudioFrameClassification")
    write_model("WavLM", "wavlm-AudioFrameClassification", together, **frames, **STABLE, **buckets)


if __name__ == "__main__":
    main()
