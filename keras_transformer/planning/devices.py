"""What devices can do, from their makers' data sheets."""

import time
from typing import NamedTuple

from keras_transformer.utils.serialization import choice


class Device(NamedTuple):
    """One device.

    Attributes:
        tflops: dense products in bfloat16 (float16 where it has no bfloat16), 10¹² operations a second.
        memory: GB (10⁹ bytes).
        bandwidth: GB a second between memory and processor.
        link: GB a second to other devices of the same kind, both directions together.
        float32: what share of `tflops` products in float32 reach.
        fuses: whether what is done to each element by itself is done in one go, as XLA does it.
    """

    tflops: float
    memory: float
    bandwidth: float
    link: float
    float32: float = 0.5
    fuses: bool = True


DEVICES = {
    "b200": Device(2250, 180, 8000, 1800),
    "gh200": Device(989, 96, 4000, 900),
    "h200": Device(989, 141, 4800, 900),
    "h100": Device(989, 80, 3350, 900),
    "h100 nvl": Device(835, 94, 3900, 600),
    "h100 pcie": Device(756, 80, 2000, 600),
    "a100": Device(312, 80, 2039, 600),
    "a40": Device(150, 48, 696, 112),
    "a30": Device(165, 24, 933, 200),
    "a10": Device(125, 24, 600, 64),
    "a10g": Device(70, 24, 600, 64),
    "l40": Device(181, 48, 864, 64),
    "l40s": Device(362, 48, 864, 64),
    "l4": Device(121, 24, 300, 64),
    "t4": Device(65, 16, 320, 32, 0.125),
    "v100": Device(125, 32, 900, 300, 0.125),
    "rtx 4090": Device(165, 24, 1008, 64),
    "rtx 3090": Device(71, 24, 936, 64),
    "rtx a6000": Device(155, 48, 768, 112),
    "rtx 6000 ada": Device(364, 48, 960, 64),
    "tpu v4": Device(275, 32, 1228, 600),
    "tpu v5 lite": Device(197, 16, 819, 400),
    "tpu v5p": Device(459, 95, 2765, 1200),
    "tpu v6 lite": Device(918, 32, 1640, 800),
}


def get_device(name):
    """A device by its name in `DEVICES`, in letters of any size; "here" is the processor that this runs on, measured.

    Raises:
        ValueError: an unknown name; the message lists the known ones.
    """
    return this_processor() if name == "here" else choice(name.lower(), DEVICES)


def this_processor(size=1536, rounds=4):
    """The processor that this runs on, as TensorFlow finds it: the best of some products, and of some copies."""
    import tensorflow as tf

    x = tf.random.normal((size, size))
    large = tf.zeros((2**26,), "uint8")
    product, copy = _fastest(lambda: tf.matmul(x, x), rounds), _fastest(lambda: large + 1, rounds)
    return Device(2 * size**3 / product / 1e12, _memory() / 1e9, 2 * 2**26 / copy / 1e9, 0.0, 1.0, False)


def _fastest(run, rounds):
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run().numpy()
        times.append(time.perf_counter() - start)
    return min(times)


def _memory():
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
