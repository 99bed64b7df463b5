"""How much arithmetic a training step is, and how much a device can do."""

from keras_transformer.planning.devices import DEVICES


def peak_tflops(device_name):
    """The peak of a device in bfloat16, or None if no name in `DEVICES` is a part of its name; the longest counts."""
    known = [part for part in DEVICES if part in device_name.lower()]
    return DEVICES[max(known, key=len)].tflops if known else None


def training_flops(parameters, measures, length, batch_size):
    """Operations of one step, forward and backward: `6 · parameters · tokens + 12 · layers · T² · D` a sequence.

    A multiplication and an addition count as two; the backward pass is twice the forward. The second term is the products of
    queries with keys and of weights with values; it counts the whole square, of which a causal kernel computes half.

    Args:
        parameters: int. Those that multiply every token.
        measures: `networks.Measures`.
        length: int. Tokens of a sequence T.
        batch_size: int.

    Returns:
        int.

    Reference: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
    """
    attention = 12 * measures.num_layers * length**2 * measures.hidden_dim
    return batch_size * (6 * parameters * length + attention)
