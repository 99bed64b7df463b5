"""The mapping of BART and its relatives: blocks of encoder and decoder, and their final norms."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm

SIDES = {"encoder": "source", "decoder": "target"}


def block_entries(
    config: Config, has_final_norm: bool, key_bias: bool | None = None, sides: tuple[str, ...] = tuple(SIDES)
) -> list[Entry]:
    """Returns the mapping of all blocks of these sides, and of their final norms."""
    entries = []
    for side in sides:
        for index in range(config.integer(f"{side}_layers")):
            theirs, ours = f"{side}.layers.{index}", f"{side}_block_{index}"
            entries += block(theirs, ours, has_cross_attention=side == "decoder", key_bias=key_bias)
        entries += norm(f"{side}.layer_norm", f"{side}_final_norm") if has_final_norm else []
    return entries


def block(
    theirs: str, ours: str, *, has_cross_attention: bool = False, bias: bool = True, key_bias: bool | None = None
) -> list[Entry]:
    """Returns the mapping of one block."""
    attentions = {"self_attn": ("self_attention", "mixer")}
    attentions |= {"encoder_attn": ("cross_attention", "cross_attention")} if has_cross_attention else {}
    entries = [
        *linear(f"{theirs}.fc1", f"{ours}/feedforward/hidden", bias=bias),
        *linear(f"{theirs}.fc2", f"{ours}/feedforward/output", bias=bias),
        *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
    ]
    for name, (layer, residual) in attentions.items():
        entries += [
            *attention(
                f"{ours}/{layer}",
                query=f"{theirs}.{name}.q_proj",
                key=f"{theirs}.{name}.k_proj",
                value=f"{theirs}.{name}.v_proj",
                output=f"{theirs}.{name}.out_proj",
                bias=bias,
                key_bias=key_bias,
            ),
            *norm(f"{theirs}.{name}_layer_norm", f"{ours}/{residual}_residual/norm"),
        ]
    return entries
