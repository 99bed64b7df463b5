"""What the tests of `examples/deploy` share: prompts and texts, and what the Python runtime gives for them."""

import functools
from pathlib import Path

import numpy as np

from keras_transformer.export import load

FOLDER = Path(__file__).parents[2] / "examples" / "deploy"
# The signatures of fixed shapes read 8 tokens: a shorter prompt is padded, the rest of a longer one is read one by one.
PROMPTS = ("The cat", "Two owls read 34 books in the café")
COUNT = 12
TEXTS = (
    "The cat sat",
    " two  spaces and\n\n  lines\t\ttabs \r\n end ",
    "it's we'll 'twas they'Re don'ts 'd 've",
    "naïve café – 它在 垫子上。 Ωμέγα नमस्ते ไทย",
    "12 1,234.5 ½ Ⅷ ٣٤ x2y 3rd",
    "😀👩‍👩‍👧 \u00a0\u2003\u3000\u200b\u0085x \ufeff",
    "\x00\x01\x1c\x7f\u00ad e\u0301 \u180e",
    "!!! ...'s\" ('t) a_b",
    " ",
)


@functools.cache
def model(folder, backend):
    return load(folder / "decoder", backend)


def expected_tokens(folder, backend):
    """List of the token ids that the Python runtime generates for each prompt."""
    ids = [model(folder, backend).tokenizer.encode(prompt) for prompt in PROMPTS]
    assert min(map(len, ids)) < 8 < max(map(len, ids))
    found = [model(folder, backend).generate(each, max_new_tokens=COUNT) for each in ids]
    assert all(len(set(each)) > 6 for each in found)
    return found


def expected_classes(folder, backend):
    """The classes of digit.pgm by their probabilities, the most likely first: a list of pairs."""
    pixels = np.frombuffer((folder / "digit.pgm").read_bytes()[-64:], "uint8").reshape(1, 8, 8, 1).astype("float32")
    probabilities = load(folder / "classifier", backend)(images=pixels)["probabilities"][0]
    return [(str(index), float(probabilities[index])) for index in np.argsort(-probabilities)]


def check_classes(printed, expected):
    """Compares lines of a class and its probability."""
    found = [line.rsplit(" ", 1) for line in printed.strip().splitlines()]
    assert [name for name, _ in found] == [name for name, _ in expected]
    np.testing.assert_allclose([float(each) for _, each in found], [each for _, each in expected], atol=1e-5)
