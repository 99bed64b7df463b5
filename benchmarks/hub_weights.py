"""Copies our weights into KerasHub's networks."""

from networks import same_weights

# Parts of KerasHub's paths, and ours.
_ENCODER = {
    "self_attention_layer/": "self_attention/",
    "self_attention_layer_norm": "mixer_residual/norm",
    "feedforward_layer_norm": "feedforward_residual/norm",
    "feedforward_intermediate_dense": "feedforward/hidden",
    "feedforward_output_dense": "feedforward/output",
}
_VIT = {
    "vit_patching_and_embedding/class_token": "patch_embedding/class_embedding",
    "vit_patching_and_embedding/patch_embedding": "patch_embedding/projection",
    "vit_patching_and_embedding/position_embedding/embeddings": "patch_embedding/position_embeddings",
    "mha/": "self_attention/",
    "ln_1": "mixer_residual/norm",
    "ln_2": "feedforward_residual/norm",
    "mlp/dense_1": "feedforward/hidden",
    "mlp/dense_2": "feedforward/output",
    "vit_encoder/ln/": "final_norm/",
}
# The repeated layers, in order.
_BLOCKS = ("transformer_encoder", "transformer_block")


def with_our_weights(hub, model):
    """Assigns our weights to KerasHub's encoder or ViT.

    Args:
        hub: the network of `networks.hub_encoder` or `networks.hub_vit`.
        model: our network of the same size.

    Returns:
        `hub`.

    Raises:
        AssertionError: the architectures differ.
    """
    same_weights(model, hub)
    sources = {weight.path: weight for weight in model.weights}
    blocks = {}
    for weight in hub.weights:
        weight.assign(sources.pop(_our_path(weight.path, blocks)))
    if sources:
        raise AssertionError(f"Not the same network: {sorted(sources)[:4]}")
    return hub


def _our_path(path, blocks):
    parts = path.split("/")
    depth = next((depth for depth, part in enumerate(parts) if part.startswith(_BLOCKS)), None)
    if depth is not None:
        index = blocks.setdefault(parts[depth], len(blocks))
        path = "/".join([f"encoder_block_{index}", *parts[depth + 1 :]])
    elif parts[0].startswith("token_and_position_embedding"):
        return "/".join(parts[1:])
    elif parts[0].startswith("layer_normalization"):
        return f"final_norm/{parts[-1]}"
    for theirs, ours in (_VIT if depth == 1 or path.startswith("vit_") else _ENCODER).items():
        path = path.replace(theirs, ours)
    return path
