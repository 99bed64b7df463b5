"""Multi-head latent attention beside torch: a prompt, and one more token after it.

    python benchmarks/latent_attention.py                     # width 1024, 16 heads, latent 256 + 32, 4,096 tokens
    python benchmarks/latent_attention.py --only decode

Peers: transformers' `DeepseekV3Attention` over `scaled_dot_product_attention`, which keeps latents and expands all of them
in each step; the same with values padded to the width of the keys, for which torch has a fused kernel; and for a step the
absorbed form of DeepSeek's own code (`attn_impl="absorb"`). All have the same weights, inputs and cache.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from measure import Table, arguments, limit_threads, milliseconds, ratio, ratio_note, take_turns, timed, versions

from keras_transformer.attention import BlockwiseAttention, MultiHeadLatentAttention
from keras_transformer.backend.compilation.in_place import InPlace

MODES = ("prefill", "decode")


def make_layer(options):
    head = options.width // options.heads
    layer = MultiHeadLatentAttention(
        options.heads,
        options.latent,
        head,
        options.rotary,
        query_latent_dim=options.query_latent,
        mechanism=BlockwiseAttention(),
    )
    layer.build((None, None, options.width))
    return layer


class Ours:
    """A layer with its cache, which compiled functions update in place as in generation.

    Args:
        layer: `MultiHeadLatentAttention`.
        x: float `(1, T, D)`.
    """

    def __init__(self, layer, x):
        self.layer, self.x = layer, x
        self.state = InPlace(lambda: layer.init_cache(1, x.shape[1]), layer, jit_compile=True)
        self.read = self.state.compiled(self._read, ["float32", "int32"], [3, 1])

    def _read(self, cache, take, put, x, index):
        return self.layer(x, x, cache=cache, cache_index=index)

    def prefill(self):
        return self.read(self.x, np.zeros(1, "int32"))

    def decode(self):
        return self.read(self.x[:, -1:], np.full(1, self.x.shape[1] - 1, "int32"))


def measure(table, mode, options):
    from latent_peers import PEERS

    x = np.random.default_rng(0).normal(size=(1, options.length, options.width)).astype("float32")
    layer = make_layer(options)
    ours = Ours(layer, x)
    expected = ours.prefill()
    for name, make in PEERS[mode].items():
        peer = make(layer, x)
        step = getattr(ours, mode)
        difference = np.abs(getattr(peer, mode)() - step()).max() / np.abs(expected).max()
        turns = take_turns({"ours": timed(step), "peer": timed(getattr(peer, mode))}, options.rounds)
        table.add(
            mode=mode,
            peer=name,
            n=options.length,
            ours_ms=milliseconds(turns["ours"]),
            peer_ms=milliseconds(turns["peer"]),
            **ratio(turns["ours"], turns["peer"]),
            difference=float(f"{difference:.1e}"),
        )


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--latent", type=int, default=256)
    parser.add_argument("--rotary", type=int, default=32)
    parser.add_argument("--query-latent", type=int, default=None)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.tiny:
        options.length, options.width, options.heads, options.latent, options.rotary = 33, 16, 2, 8, 4
        options.rounds = 2
    return options


def main():

    options = parse()
    limit_threads(options.threads)
    sizes = f"width {options.width}, {options.heads} heads, latent {options.latent} + {options.rotary}"
    title = f"Latent attention of {sizes}, batch 1, {options.threads} threads"
    table = Table(title, versions("keras-transformer", "keras", "tensorflow", "torch", "transformers"))
    for mode in options.only:
        measure(table, mode, options)
    table.note(ratio_note(f"{options.rounds}"))
    table.note("difference: of both outputs, relative to the largest value.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
