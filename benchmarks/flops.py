"""How much arithmetic a training step is, and how much a device can do."""

# Dense bfloat16 TFLOP/s of the tensor cores (float16 where there is no bfloat16), from the makers' data sheets, by a part
# of the device's name; the longest part that fits counts.
PEAK_TFLOPS = {
    "B200": 2250,
    "GH200": 989,
    "H200": 989,
    "H100": 989,
    "H100 PCIe": 756,
    "H100 NVL": 835,
    "A100": 312,
    "A40": 150,
    "A30": 165,
    "A10": 125,
    "A10G": 70,
    "L40": 181,
    "L40S": 362,
    "L4": 121,
    "T4": 65,
    "V100": 125,
    "RTX 4090": 165,
    "RTX 3090": 71,
    "RTX A6000": 155,
    "RTX 6000 Ada": 364,
    "TPU v4": 275,
    "TPU v5 lite": 197,
    "TPU v5p": 459,
    "TPU v6 lite": 918,
}


def peak_tflops(device_name):
    """The peak of a device, or None if its name is not in the table."""
    known = [part for part in PEAK_TFLOPS if part.lower() in device_name.lower()]
    return PEAK_TFLOPS[max(known, key=len)] if known else None


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
