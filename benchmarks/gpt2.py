"""GPT-2 in three implementations with the same weights: ours, KerasHub's and Hugging Face's."""

from typing import NamedTuple

import keras
import numpy as np
from networks import trained_looking

from keras_transformer import models, tasks

EPSILON = 1e-5


class Measures(NamedTuple):
    """Size of a network; `static_length` is the cache length in exported signatures of fixed shapes."""

    num_layers: int = 6
    hidden_dim: int = 384
    num_heads: int = 6
    vocabulary_size: int = 50257
    max_sequence_length: int = 1024
    static_length: int = 160

    @property
    def size(self):
        return models.Size(self.num_layers, self.hidden_dim, self.num_heads, 4 * self.hidden_dim)


GPT2 = Measures()


def ours(measures):
    """Returns our language model, with random weights other than the initial ones."""
    norm = keras.layers.LayerNormalization(epsilon=EPSILON)
    length = measures.max_sequence_length
    backbone = models.Decoder(measures.size, measures.vocabulary_size, max_sequence_length=length, norm=norm)
    model = trained_looking(tasks.LanguageModel(backbone))
    model.compile(jit_compile=True)
    return model


def keras_hub(model, measures):
    """Returns KerasHub's GPT-2 with our weights, as a function of prompt and number of new tokens."""
    from keras_hub.models import GPT2Backbone, GPT2CausalLM

    size = measures.size
    backbone = GPT2Backbone(
        vocabulary_size=measures.vocabulary_size,
        num_layers=size.num_layers,
        num_heads=size.num_heads,
        hidden_dim=size.hidden_dim,
        intermediate_dim=size.intermediate_dim,
        dropout=0.0,
        max_sequence_length=measures.max_sequence_length,
    )
    sources = {weight.path: weight for weight in model.weights}
    targets = {_hub_name(weight.path): weight for weight in backbone.weights}
    if set(sources) != set(targets):
        raise AssertionError(f"Not the same network: {sorted(set(sources) ^ set(targets))[:6]}")
    for name, weight in targets.items():
        weight.assign(sources[name])
    peer = GPT2CausalLM(backbone=backbone, preprocessor=None)
    peer.compile(sampler="greedy", jit_compile=True)

    def generate(prompt, new):
        token_ids = np.zeros((1, len(prompt) + new), "int32")
        token_ids[0, : len(prompt)] = prompt
        padding_mask = np.arange(token_ids.shape[1]) < len(prompt)
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask[None].astype("int32")}
        output = peer.generate(inputs, stop_token_ids=None)
        return np.asarray(output["token_ids"])[0, len(prompt) :].tolist()

    return generate


def hugging_face(model, measures, threads):
    """Returns Hugging Face's GPT-2 in torch with our weights, as a function of prompt and number of new tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(threads)
    size = measures.size
    config = GPT2Config(
        vocab_size=measures.vocabulary_size,
        n_positions=measures.max_sequence_length,
        n_embd=size.hidden_dim,
        n_layer=size.num_layers,
        n_head=size.num_heads,
        n_inner=size.intermediate_dim,
        layer_norm_epsilon=EPSILON,
        bos_token_id=None,
        eos_token_id=None,
    )
    peer = GPT2LMHeadModel(config).eval()
    state = {name: torch.from_numpy(array.copy()) for name, array in _hugging_face_state(model, size).items()}
    missing, unexpected = peer.load_state_dict(state, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise AssertionError(f"Not the same network: {missing} {unexpected}")
    peer.tie_weights()

    def generate(prompt, new):
        with torch.inference_mode():
            output = peer.generate(
                torch.tensor([prompt]), do_sample=False, min_new_tokens=new, max_new_tokens=new, pad_token_id=0
            )
        return output[0, len(prompt) :].tolist()

    return generate


# KerasHub's names of the layers of a block, and ours.
_HUB = {
    "self_attention_layer_norm": "mixer_residual/norm",
    "feedforward_layer_norm": "feedforward_residual/norm",
    "feedforward_intermediate_dense": "feedforward/hidden",
    "feedforward_output_dense": "feedforward/output",
    "layer_norm": "final_norm",
}


def _hub_name(path):
    parts = [_HUB.get(part, part) for part in path.split("/")]
    return "/".join(parts).replace("transformer_layer_", "decoder_block_")


def _hugging_face_state(model, size):
    """Returns our weights by Hugging Face's names: kernels are `(in, out)`; query, key and value are concatenated."""
    weights = {weight.path: np.asarray(weight) for weight in model.weights}
    width = size.hidden_dim
    state = {
        "transformer.wte.weight": weights["token_embedding/embeddings"],
        "transformer.wpe.weight": weights["position_embedding/embeddings"],
        "transformer.ln_f.weight": weights["final_norm/gamma"],
        "transformer.ln_f.bias": weights["final_norm/beta"],
    }
    for number in range(size.num_layers):
        own, theirs = f"decoder_block_{number}", f"transformer.h.{number}"
        parts = [f"{own}/self_attention/{name}" for name in ("query", "key", "value")]
        state |= {
            f"{theirs}.ln_1.weight": weights[f"{own}/mixer_residual/norm/gamma"],
            f"{theirs}.ln_1.bias": weights[f"{own}/mixer_residual/norm/beta"],
            f"{theirs}.ln_2.weight": weights[f"{own}/feedforward_residual/norm/gamma"],
            f"{theirs}.ln_2.bias": weights[f"{own}/feedforward_residual/norm/beta"],
            f"{theirs}.attn.c_attn.weight": np.concatenate(
                [weights[f"{p}/kernel"].reshape(width, -1) for p in parts], 1
            ),
            f"{theirs}.attn.c_attn.bias": np.concatenate([weights[f"{p}/bias"].ravel() for p in parts]),
            f"{theirs}.attn.c_proj.weight": weights[f"{own}/self_attention/attention_output/kernel"].reshape(-1, width),
            f"{theirs}.attn.c_proj.bias": weights[f"{own}/self_attention/attention_output/bias"],
            f"{theirs}.mlp.c_fc.weight": weights[f"{own}/feedforward/hidden/kernel"],
            f"{theirs}.mlp.c_fc.bias": weights[f"{own}/feedforward/hidden/bias"],
            f"{theirs}.mlp.c_proj.weight": weights[f"{own}/feedforward/output/kernel"],
            f"{theirs}.mlp.c_proj.bias": weights[f"{own}/feedforward/output/bias"],
        }
    return state
