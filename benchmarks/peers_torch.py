"""The exported networks in PyTorch with our weights, run and exported by PyTorch."""

import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_networks import Block


class MaskedBlock(Block):
    """A `Block` with a padding mask."""

    def forward(self, x, mask=None):
        x = x + self._attend_to(self.attention_norm(x), mask)
        return x + self.feedforward(self.feedforward_norm(x))

    def _attend_to(self, x, mask):
        batch_size, length, width = x.shape
        qkv = self.qkv(x).view(batch_size, length, 3, self.num_heads, width // self.num_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, N, T, H)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(context.transpose(1, 2).reshape(batch_size, length, width))


class Encoder(nn.Module):
    """Token ids and a padding mask, `(B, T)` each, to `(B, T, D)`: `models.Encoder`."""

    def __init__(self, measures, epsilon=1e-3):
        super().__init__()
        width = measures.hidden_dim
        self.embedding = nn.Embedding(measures.vocabulary_size, width)
        self.positions = nn.Parameter(torch.zeros(measures.length, width))
        self.blocks = nn.ModuleList(MaskedBlock(measures, False, "none", epsilon) for _ in range(measures.num_layers))
        self.norm = nn.LayerNorm(width, eps=epsilon)

    def forward(self, token_ids, padding_mask):
        x = self.embedding(token_ids) + self.positions[: token_ids.shape[1]]
        mask = padding_mask[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)


class ViT(nn.Module):
    """Images `(B, 3, height, width)` to tokens `(B, T, D)`: `models.ViT`."""

    def __init__(self, measures, epsilon=1e-6):
        super().__init__()
        width, patch = measures.hidden_dim, measures.patch_size
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (measures.image_size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(MaskedBlock(measures, False, "none", epsilon) for _ in range(measures.num_layers))
        self.norm = nn.LayerNorm(width, eps=epsilon)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def torch_encoder(model, measures):
    """Returns `Encoder` with our weights."""
    weights = weights_of(model)
    state = {"embedding.weight": weights["token_embedding/embeddings"]}
    state["positions"] = weights["position_embedding/embeddings"]
    return _filled(Encoder(measures), state | _block_state(weights, measures))


def torch_vit(model, measures):
    """Returns `ViT` with our weights."""
    weights = weights_of(model)
    state = {
        "patches.weight": weights["patch_embedding/projection/kernel"].transpose(3, 2, 0, 1),
        "patches.bias": weights["patch_embedding/projection/bias"],
        "class_token": weights["patch_embedding/class_embedding"],
        "positions": weights["patch_embedding/position_embeddings"][None],
    }
    return _filled(ViT(measures), state | _block_state(weights, measures))


def weights_of(model):
    """Returns the weights of a Keras model by path."""
    return {weight.path: np.asarray(weight) for weight in model.weights}


def _filled(network, state):
    network.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()})
    return network.eval()


def _block_state(weights, measures):
    state = {"norm.weight": weights["final_norm/gamma"], "norm.bias": weights["final_norm/beta"]}
    width = measures.hidden_dim
    for index in range(measures.num_layers):
        ours, theirs = f"encoder_block_{index}", f"blocks.{index}"
        parts = [f"{ours}/self_attention/{name}" for name in ("query", "key", "value")]
        kernels = [weights[f"{part}/kernel"].reshape(width, width) for part in parts]
        state[f"{theirs}.qkv.weight"] = np.concatenate(kernels, axis=1).T
        state[f"{theirs}.qkv.bias"] = np.concatenate([weights[f"{part}/bias"].reshape(-1) for part in parts])
        for source, target in (
            ("self_attention/attention_output", "output"),
            ("feedforward/hidden", "feedforward.0"),
            ("feedforward/output", "feedforward.2"),
        ):
            kernel = weights[f"{ours}/{source}/kernel"]
            state[f"{theirs}.{target}.weight"] = kernel.reshape(-1, kernel.shape[-1]).T
            state[f"{theirs}.{target}.bias"] = weights[f"{ours}/{source}/bias"]
        for source, target in (("mixer", "attention_norm"), ("feedforward", "feedforward_norm")):
            state[f"{theirs}.{target}.weight"] = weights[f"{ours}/{source}_residual/norm/gamma"]
            state[f"{theirs}.{target}.bias"] = weights[f"{ours}/{source}_residual/norm/beta"]
    return state


def eager(network, threads):
    """Returns the eager network as a function of a dict of arrays."""
    torch.set_num_threads(threads)

    def run(arrays):
        with torch.inference_mode():
            return network(*(torch.from_numpy(array) for array in arrays.values())).numpy()

    return run


def compiled(network, threads):
    """Returns the network compiled by `torch.compile` with dynamic shapes, as in the exported files."""
    return eager(torch.compile(network, dynamic=True), threads)


def dynamo_onnx(network, arrays, path, opset=None):
    """Exports the network by PyTorch's exporter with dynamic batch size and length; returns the path."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    axes = tuple({0: batch, 1: length} if array.ndim == 2 else {0: batch} for array in arrays.values())
    torch.onnx.export(
        network,
        tuple(torch.from_numpy(array) for array in arrays.values()),
        str(path),
        input_names=list(arrays),
        dynamo=True,
        dynamic_shapes=axes,
        opset_version=opset,
        verbose=False,
    )
    return path


def optimized_onnx(source, path, measures, model_type="bert"):
    """Optimizes a file by ONNX Runtime's transformer optimizer; returns the path."""
    from onnxruntime.transformers import optimizer

    found = optimizer.optimize_model(
        str(source), model_type, num_heads=measures.num_heads, hidden_size=measures.hidden_dim, opt_level=0
    )
    found.save_model_to_file(str(path), use_external_data_format=False)
    return pathlib.Path(path)
