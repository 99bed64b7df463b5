"""Makes the folders vits*: python tests/data/checkpoints/make_vits.py (transformers 5.24, torch 2.13).

Each text is spoken alone: in a batch, transformers computes padding as frames, which changes the last samples.
"""

import contextlib
import json
import unittest.mock

import numpy as np
import torch
import transformers
from writing import HERE, build, ragged_tokens, write

VOCABULARY, LENGTHS, FRAMES, RATES = 17, (9, 5, 2), 44, (1.3, 0.9, 0.45)
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "window_size": 2,
    "ffn_dim": 14,
    "ffn_kernel_size": 4,
    "flow_size": 6,
    "spectrogram_bins": 9,
    "hidden_act": "gelu",
    "num_speakers": 5,
    "speaker_embedding_size": 4,
    "upsample_initial_channel": 24,
    "upsample_rates": [3, 2],
    "upsample_kernel_sizes": [5, 6],
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 2], [3, 1, 2]],
    "leaky_relu_slope": 0.2,
    "depth_separable_num_layers": 2,
    "duration_predictor_flow_bins": 5,
    "duration_predictor_tail_bound": 1.5,
    "duration_predictor_kernel_size": 5,
    "duration_predictor_num_flows": 3,
    "duration_predictor_filter_channels": 7,
    "prior_encoder_num_flows": 3,
    "prior_encoder_num_wavenet_layers": 3,
    "posterior_encoder_num_wavenet_layers": 2,
    "wavenet_kernel_size": 3,
    "wavenet_dilation_rate": 2,
    "speaking_rate": 1.25,
    "noise_scale": 0.6,
    "noise_scale_duration": 0.7,
    "sampling_rate": 8000,
    "pad_token_id": 0,
}
# Both without the speakers that the tensors are made for.
PLAIN = {"use_stochastic_duration_prediction": False, "num_speakers": 1, "use_bias": False, "ffn_kernel_size": 3}
SPEAKERS = (4, 0, 2)
GRADIENTS = (
    "text_encoder.encoder.layers.0.attention.emb_rel_k",
    "text_encoder.encoder.layers.0.attention.emb_rel_v",
    "text_encoder.encoder.layers.1.feed_forward.conv_1.weight",
    "text_encoder.project.weight",
    "flow.flows.1.conv_pre.weight",
    "flow.flows.0.wavenet.in_layers.0.bias",
    "decoder.upsampler.0.weight",
    "decoder.resblocks.1.convs1.0.weight",
)
DURATION_GRADIENTS = {
    True: (
        "duration_predictor.conv_dds.convs_dilated.1.weight",
        "duration_predictor.cond.weight",
        "duration_predictor.flows.0.log_scale",
        "duration_predictor.flows.2.conv_proj.weight",
        "duration_predictor.flows.3.conv_dds.norms_2.0.weight",
    ),
    False: ("duration_predictor.conv_1.weight", "duration_predictor.norm_2.bias", "duration_predictor.proj.weight"),
}


def lively(config, seed):
    """A model with large weights, whose splines bend and whose samples are loud."""
    model = build(transformers.VitsModel, config, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("decoder.") and name.endswith("weight"):
                parameter.mul_(0.45)
            elif "flows" in name and "conv_proj.weight" in name:
                parameter.mul_(0.7)
            elif name.endswith(("log_scale", "translate")):
                parameter.add_(0.4 * torch.randn_like(parameter))
    return model


@contextlib.contextmanager
def drawn(noise, dtype=torch.float32):
    """Draws this noise, `(length, channels)`, in place of random numbers; longer noise is cut off."""

    def given(shape):
        array = noise["frame_noise"] if shape[1] == CONFIG["flow_size"] else noise["duration_noise"]
        return torch.tensor(array[: shape[2]].T[None], dtype=dtype)

    with (
        unittest.mock.patch.object(torch, "randn", lambda *shape: given(shape)),
        unittest.mock.patch.object(torch, "randn_like", lambda tensor: given(tuple(tensor.shape))),
    ):
        yield


def rows(inputs):
    """What transformers is called with for each row, and its noise."""
    for row, length in enumerate(LENGTHS):
        arguments = {"input_ids": torch.tensor(inputs["token_ids"][row : row + 1, :length].astype("int64"))}
        arguments["speaking_rate"] = float(inputs["speaking_rate"][row])
        if "speaker" in inputs:
            arguments["speaker_id"] = int(inputs["speaker"][row])
        yield arguments, {name: array[row] for name, array in inputs.items() if name.endswith("noise")}


def spoken(model, inputs):
    """The waveforms, one tensor for each row."""
    found = []
    for arguments, noise in rows(inputs):
        with drawn(noise):
            found.append(model(**arguments).waveform[0])
    return found


def log_durations(model, inputs):
    """The log durations, one tensor for each row."""
    found = []
    for arguments, noise in rows(inputs):
        ids = arguments["input_ids"]
        mask = torch.ones((1, 1, ids.shape[1]), dtype=model.dtype)
        hidden = model.text_encoder(ids, mask.transpose(1, 2), mask[:, 0]).last_hidden_state.transpose(1, 2)
        speaker = None
        if "speaker_id" in arguments:
            speaker = model.embed_speaker(torch.tensor([arguments["speaker_id"]])).unsqueeze(-1)
        options = {"reverse": True, "noise_scale": model.noise_scale_duration} if "duration_noise" in noise else {}
        with drawn(noise, model.dtype):
            found.append(model.duration_predictor(hidden, mask, speaker, **options)[0, 0])
    return found


def padded(tensors, length, filler=0.0):
    result = np.full((len(tensors), length), filler, "float32")
    for row, tensor in zip(result, tensors, strict=True):
        row[: len(tensor)] = tensor.detach().numpy()
    return result


def gradients(model, tensors, length, names, seed):
    """Of `sum(tensor * direction)`, as those of `writing`."""
    direction = np.random.default_rng(seed).normal(size=(len(tensors), length)).astype("float32")
    loss = sum((row * torch.tensor(weights[: len(row)])).sum() for row, weights in zip(tensors, direction, strict=True))
    loss.backward()
    parameters = dict(model.named_parameters())
    found = {f"gradient/{name}": parameters[name].grad.numpy().copy() for name in names}
    model.zero_grad()
    mask = np.arange(length) < np.array([len(row) for row in tensors])[:, None]
    return {"direction": direction * mask, **found}


def make_inputs(config):
    tokens, mask = ragged_tokens(VOCABULARY, LENGTHS, seed=3)
    generator = np.random.default_rng(4)
    inputs = {
        "token_ids": tokens,
        "padding_mask": mask,
        "speaking_rate": np.array(RATES, "float32"),
        "frame_noise": generator.normal(size=(len(LENGTHS), FRAMES, config.flow_size)).astype("float32"),
    }
    if config.use_stochastic_duration_prediction:
        inputs["duration_noise"] = 1.5 * generator.normal(size=(*mask.shape, 2)).astype("float32")
    if config.num_speakers > 1:
        inputs["speaker"] = np.array(SPEAKERS, "int32")
    return inputs


def is_clear(model, inputs):
    """Whether durations vary, are exact and far from where they are rounded, and fit into the noise."""
    with torch.no_grad():
        try:
            durations = log_durations(model, inputs)
        except RuntimeError:  # A text without a value inside of its splines, which is an error there.
            return False
        found = [row.exp().numpy() / rate for row, rate in zip(durations, RATES, strict=True)]
        if max(np.ceil(row).sum() for row in found) >= FRAMES - 3:
            return False
        loud = [np.abs(row.numpy()) for row in spoken(model, inputs)]
        exact = log_durations(model.double(), inputs)
    rounding = max((one - other).abs().max() for one, other in zip(durations, exact, strict=True))
    every = np.concatenate(found)
    varied = len(set(np.ceil(every))) >= 4 and np.log(every).std() > 0.35
    clear = np.abs(every - np.round(every)).min() > 0.005
    return rounding < 1.5e-6 and varied and clear and np.mean(loud[0]) > 0.2 and max(row.max() for row in loud) < 0.98


def make(name, **changes):
    config = transformers.VitsConfig(**{**CONFIG, **changes})
    inputs = make_inputs(config)
    seed = next(seed for seed in range(2000) if is_clear(lively(config, seed), inputs))
    model = lively(config, seed)
    samples_per_frame = int(np.prod(config.upsample_rates))
    found = spoken(model, inputs)
    names = (*GRADIENTS, "embed_speaker.weight") if config.num_speakers > 1 else GRADIENTS
    more = gradients(model, found, FRAMES * samples_per_frame, names, 5)
    outputs = {
        "samples": padded(found, FRAMES * samples_per_frame),
        "num_samples": np.array([len(row) for row in found], "int32"),
    }
    write(name, model, inputs, outputs, **more)
    found = log_durations(model, inputs)
    names = DURATION_GRADIENTS[config.use_stochastic_duration_prediction]
    more = gradients(model, found, max(LENGTHS), names, 6)
    np.savez_compressed(HERE / name / "durations.npz", log_durations=padded(found, max(LENGTHS), np.nan), **more)
    print(seed, [np.round(row.exp().detach().numpy(), 2) for row in found], np.abs(outputs["samples"]).max())


def write_tokenizer(name, vocabulary, texts, **options):
    """A tokenizer, and what it makes of texts."""
    folder = HERE / name
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    tokenizer = transformers.VitsTokenizer(folder / "vocab.json", **options)
    tokenizer.save_pretrained(folder)
    ids = {text: tokenizer(text)["input_ids"] for text in texts}
    (folder / "texts.json").write_text(json.dumps(ids, indent=1, ensure_ascii=False) + "\n")


TEXTS = ("make", "book", "key", " Kook,  A!", "BÉ", "kk", "a <unk> b", "x", "a\nb", "k e", "Omaț mamț", "ß", "éÉ")


def main():
    make("vits-Model")
    make("vits_plain-Model", **PLAIN)
    letters = {letter: index for index, letter in enumerate("k eabmo'tţé")}
    options = {"phonemize": False, "unk_token": "<unk>"}
    # As in MMS-TTS, the token between letters is a letter.
    write_tokenizer("vits-Model", letters, TEXTS, language="ron", pad_token="k", **options)
    letters = {"_": 0, **{letter: index for index, letter in enumerate("k eabmo'tţÉ", 1)}, "<unk>": 12}
    write_tokenizer("vits_plain-Model", letters, TEXTS, language="eng", pad_token="_", **options, normalize=False)


if __name__ == "__main__":
    main()
