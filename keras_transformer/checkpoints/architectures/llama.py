"""Llama, as transformers' `LlamaModel` and its heads; and what its kind share."""

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.heads import decoder_heads
from keras_transformer.checkpoints.mapping import embedding, linear, rms_norm
from keras_transformer.checkpoints.rotary import rotary
from keras_transformer.models import Llama as LlamaModel
from keras_transformer.models import Size


class Llama(Architecture):
    """Llama: Touvron et al., arXiv 2302.13971; up to 3.2 (text)."""

    base_prefix = ("model.", "transformer.")
    ignored = (r"rotary_emb\.inv_freq$",)
    tied = {"lm_head.weight": "model.embed_tokens.weight"}
    heads = decoder_heads()

    def backbone(self, config):
        return LlamaModel(
            size(config),
            config.integer("vocab_size"),
            **grouped_heads(config),
            position=rotary(config, head_width(config)),
            use_attention_bias=config.flag("attention_bias", False),
            use_feedforward_bias=config.flag("mlp_bias", False),
            **options(config),
        )

    def entries(self, config):
        bias = config.flag("attention_bias", False)
        return gated_decoder_entries(
            config, bias=bias, output_bias=bias, feedforward_bias=config.flag("mlp_bias", False)
        )


def size(config):
    """The `Size` of a config in the manner of Llama's."""
    return Size(
        config.integer("num_hidden_layers"),
        config.integer("hidden_size"),
        config.integer("num_attention_heads"),
        config.integer("intermediate_size"),
    )


def options(config, rms_norm_epsilon=1e-6):
    """dict of the options that all of Llama's kind have; the epsilon is that of a config without one."""
    return {
        "activation": config.activation(default="silu"),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "rms_norm_epsilon": config.number("rms_norm_eps", rms_norm_epsilon),
    }


def head_width(config, default=None):
    """int: the width of each head; `default`, or an equal share, where the config has none."""
    share = config.integer("hidden_size") // config.integer("num_attention_heads")
    return config.integer("head_dim", default or share)


def grouped_heads(config, num_key_value_heads=None, key_dim=None):
    """dict of the options of grouped heads; the arguments stand for what the config has not."""
    heads = config.integer("num_key_value_heads", num_key_value_heads or config.integer("num_attention_heads"))
    return {"num_key_value_heads": heads, "key_dim": head_width(config, key_dim)}


def window_of_each_layer(config, window, types=None):
    """The window of each block, None for all tokens, by "layer_types" or by these."""
    types = config.get("layer_types", types)
    known = {"full_attention": None, "sliding_attention": window}
    count = config.integer("num_hidden_layers")
    if not isinstance(types, list) or len(types) != count or not all(kind in list(known) for kind in types):
        config.only("layer_types", f"one of {sorted(known)} for each of {count} layers")
    return [known[each] for each in types]


def decoder_entries(config, block_entries):
    """The mapping of embedding, blocks and last norm; `block_entries` is a function of `(theirs, ours)`."""
    entries = [*embedding("embed_tokens", "token_embedding"), *rms_norm("norm", "final_norm")]
    for index in range(config.integer("num_hidden_layers")):
        entries += block_entries(f"layers.{index}", f"decoder_block_{index}")
    return entries


def gated_decoder_entries(config, *, feedforward_bias=False, **attention):
    """`decoder_entries` of pre-norm blocks with a gated feed-forward; `attention` is what `attention_entries` is told."""
    return decoder_entries(
        config,
        lambda theirs, ours: [
            *norm_entries(theirs, ours),
            *attention_entries(theirs, ours, **attention),
            *gated_entries(theirs, ours, bias=feedforward_bias),
        ],
    )


def norm_entries(theirs, ours):
    """The norms of a pre-norm block."""
    return [
        *rms_norm(f"{theirs}.input_layernorm", f"{ours}/mixer_residual/norm"),
        *rms_norm(f"{theirs}.post_attention_layernorm", f"{ours}/feedforward_residual/norm"),
    ]


def attention_entries(theirs, ours, *, bias=False, output_bias=False, norms=False):
    """The projections of attention, and its norms of queries and keys if there are any."""
    theirs, ours = f"{theirs}.self_attn", f"{ours}/self_attention"
    entries = linear(f"{theirs}.o_proj", f"{ours}/attention_output", inputs=2, bias=output_bias)
    for short, name in (("q", "query"), ("k", "key"), ("v", "value")):
        entries += linear(f"{theirs}.{short}_proj", f"{ours}/{name}", bias=bias)
    if norms:
        entries += rms_norm(f"{theirs}.q_norm", f"{ours}/query_norm")
        entries += rms_norm(f"{theirs}.k_norm", f"{ours}/key_norm")
    return entries


def gated_entries(theirs, ours, *, bias=False):
    """The gated feed-forward."""
    theirs, ours = f"{theirs}.mlp", f"{ours}/feedforward"
    return [
        *linear(f"{theirs}.gate_proj", f"{ours}/gate", bias=bias),
        *linear(f"{theirs}.up_proj", f"{ours}/hidden", bias=bias),
        *linear(f"{theirs}.down_proj", f"{ours}/output", bias=bias),
    ]
