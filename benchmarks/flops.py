"""Operations of a training step, and the peak of a device."""

from keras_transformer.planning.devices import DEVICES


def peak_tflops(device_name):
    """Returns the bfloat16 peak of the longest name in `DEVICES` that is part of the device name, or None."""
    known = [part for part in DEVICES if part in device_name.lower()]
    return DEVICES[max(known, key=len)].tflops if known else None


def training_flops(parameters, measures, length, batch_size):
    """Returns the operations of one training step: `6 · parameters · tokens + 12 · layers · T² · D` per sequence.

    A multiply-add counts as two operations; the backward pass is twice the forward pass. The second term is attention: the
    products of queries with keys and of weights with values, without causality, which halves it.

    Args:
        parameters: int. Number of parameters that multiply every token.
        measures: `networks.Measures`.
        length: int. Tokens of a sequence T.
        batch_size: int.

    Returns:
        int.

    Reference: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
    """
    attention = 12 * measures.num_layers * length**2 * measures.hidden_dim
    return batch_size * (6 * parameters * length + attention)
