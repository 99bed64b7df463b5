"""Makes the folders parakeet*: python tests/data/checkpoints/make_parakeet.py (transformers 5.24, torch 2.13)."""

import json

import numpy as np
import tokenizers
import torch
import transformers
from writing import HERE, build, gradients, run, write

BINS, LENGTHS, BLANK = 27, (61, 40, 9), 12
ENCODER = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 14,
    "hidden_act": "gelu",
    "conv_kernel_size": 5,
    "subsampling_factor": 4,
    "subsampling_conv_channels": 6,
    "num_mel_bins": BINS,
    "subsampling_conv_kernel_size": 5,
    "subsampling_conv_stride": 3,
    "max_position_embeddings": 99,
}
EXTRACTOR = {"feature_size": BINS, "hop_length": 50, "n_fft": 130, "win_length": 101, "preemphasis": 0.9}
# As `ParakeetTokenizer` has them: a padding token, which is the blank, after all others.
WORDS = ["<unk>", "▁", "▁t", "e", "n", "a", "o", "▁one", "'", "t", "▁ten", "x"]
GRADIENTS = (
    "encoder.subsampling.layers.2.weight",
    "encoder.layers.0.self_attn.relative_k_proj.weight",
    "encoder.layers.0.self_attn.bias_v",
    "encoder.layers.1.conv.depthwise_conv.weight",
    "encoder.layers.1.conv.norm.weight",
    "encoder.layers.0.feed_forward1.linear1.weight",
)


def lively(cls, config, seed=0):
    """A model with large weights, so that attention is not uniform, and with the batch norms of a trained one."""
    model = build(cls, config, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if "running" in name:
                noise = torch.rand(buffer.shape)
                buffer.copy_(0.5 + noise if name.endswith("var") else noise - 0.5)
    return model


def speaking(config, batch):
    """A model whose texts of recordings vary."""
    for seed in range(99):
        model = lively(transformers.ParakeetForCTC, config, seed)
        with torch.no_grad():
            said = [{*row.tolist()} - {BLANK, 0} for row in model.generate(**batch)]
        if min(map(len, said)) >= 2 and len(said[0]) >= 4:
            return model
    raise AssertionError("No weights let it speak.")


def features():
    """Spectrograms of unequal length, of few levels, which make small files."""
    values = np.random.default_rng(0).integers(-4, 5, (len(LENGTHS), max(LENGTHS), BINS)).astype("float32") / 4
    mask = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    return {"features": values * mask[..., None], "padding_mask": mask}


def theirs(inputs):
    return {"input_features": inputs["features"], "attention_mask": inputs["padding_mask"].astype("int64")}


def frames_of(model, inputs):
    lengths = model._get_subsampling_output_length(torch.tensor(inputs["padding_mask"].sum(axis=1)))
    return lengths.numpy()


def hidden(found, lengths):
    """NaN at padded frames, of which nothing is said."""
    return np.where((np.arange(found.shape[1]) < lengths[:, None])[:, :, None], found, np.nan)


def recordings():
    generator = np.random.default_rng(1)
    return [generator.normal(0.05, 0.2, length).astype("float32") for length in (2410, 1333, 620)]


def write_processor(folder, model, extractor, batch):
    """The processor, with its features of recordings, and the texts that transformers reads from them."""
    vocabulary = [(word, -1.0 - index / 10) for index, word in enumerate(WORDS)]
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, unk_id=0))
    unigram.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    unigram.decoder = tokenizers.decoders.Metaspace()
    unigram.add_special_tokens(["<pad>"])
    tokenizer = transformers.ParakeetTokenizer(tokenizer_object=unigram, unk_token="<unk>", pad_token="<pad>")
    tokenizer.save_pretrained(HERE / folder)
    extractor.save_pretrained(HERE / folder)
    with torch.no_grad():
        ids = model.generate(**batch)
    texts = {"greedy": tokenizer.batch_decode(ids, skip_special_tokens=True)}
    (HERE / folder / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
    np.savez_compressed(HERE / folder / "features.npz", **{name: np.asarray(array) for name, array in batch.items()})
    print(texts)


def main():
    inputs = features()
    encoder = transformers.ParakeetEncoderConfig(
        **{**ENCODER, "attention_bias": False, "convolution_bias": False, "scale_input": False}
    )
    model = lively(transformers.ParakeetEncoder, encoder)
    found = run(model, **theirs(inputs)).last_hidden_state.numpy()
    write("parakeet_encoder-Model", model, inputs, {"tokens": hidden(found, frames_of(model, inputs))})

    config = transformers.ParakeetCTCConfig(
        vocab_size=BLANK + 1, pad_token_id=BLANK, encoder_config={**ENCODER, "model_type": "parakeet_encoder"}
    )
    extractor = transformers.ParakeetFeatureExtractor(**EXTRACTOR)
    batch = extractor(recordings(), sampling_rate=16000, return_tensors="pt")
    model = speaking(config, batch)
    lengths = frames_of(model, inputs)
    found = run(model, **theirs(inputs)).logits.numpy()
    real = (np.arange(found.shape[1]) < lengths[:, None])[:, :, None]
    more = gradients(model, GRADIENTS, theirs(inputs), real)
    write("parakeet_ctc-CTC", model, inputs, {"logits": hidden(found, lengths)}, **more)
    write_processor("parakeet_ctc-CTC", model, extractor, batch)


if __name__ == "__main__":
    main()
