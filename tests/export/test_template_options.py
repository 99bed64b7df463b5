"""A bundle encodes texts with the template of the checkpoint: [CLS] and [SEP] around each, without being asked."""

import json

import numpy as np
import pytest

from keras_transformer import load_model
from keras_transformer.export import load
from keras_transformer.text import load_tokenizer

TEXTS = ["the cat sat", "dogs"]


@pytest.mark.parametrize("backend", ["saved_model", "onnx"])
def test_texts_have_the_special_tokens_of_the_template(language, backend):
    bundle = language.bundle("classifier")
    model, tokenizer = load_model(bundle.with_suffix(".keras")), load_tokenizer(bundle / "tokenizer")
    arrays = {
        "token_ids": np.array([[2, 7, 5, 8, 3], [2, 6, 9, 3, 0]]),
        "padding_mask": np.arange(5) < np.array([[5], [4]]),
    }
    np.testing.assert_array_equal(tokenizer(TEXTS, start=True, end=True)["token_ids"], arrays["token_ids"])
    assert json.loads((bundle / "manifest.json").read_text())["tokenizer"]["options"] == {"start": True, "end": True}
    (found,) = load(bundle, backend)(TEXTS).values()
    np.testing.assert_allclose(found, np.asarray(model(arrays)), rtol=1e-5, atol=1e-5)
    assert np.ptp(found, axis=0).max() > 0.01
