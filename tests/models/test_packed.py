"""Backbones for packed rows: a row computes what each of its documents gives alone, with the same weights."""

import keras
import numpy as np
import pytest

from keras_transformer import data, models

SIZE = models.Size(2, 16, 4, 24)
DECODERS = {
    "llama": lambda: models.Llama(SIZE, 30, num_key_value_heads=2),
    "gpt2": lambda: models.GPT2(SIZE, 30, max_sequence_length=16),
    "bloom": lambda: models.BLOOM(SIZE, 30),
}
DOCUMENTS = [[3, 1, 4, 1, 5, 9], [2, 6, 5], [3, 5, 8, 9, 7]]


@pytest.mark.parametrize("name", DECODERS)
def test_a_row_computes_what_each_document_gives_alone(name):
    keras.utils.set_random_seed(0)
    backbone = DECODERS[name]()
    packed = models.packed(backbone)
    assert {id(weight) for weight in packed.weights} == {id(weight) for weight in backbone.weights}
    inputs, _ = data.pack(DOCUMENTS, 14, 1, shuffle=False)[0]
    found = keras.ops.convert_to_numpy(packed(inputs))[0]
    start = 0
    for document in DOCUMENTS if inputs["token_ids"][0, 0] == 3 else ():
        tokens = np.array([document[:-1]])
        expected = keras.ops.convert_to_numpy(backbone({"token_ids": tokens, "padding_mask": tokens > 0}))[0]
        begin = next(i for i in range(14) if inputs["token_ids"][0, i : i + tokens.size].tolist() == tokens[0].tolist())
        np.testing.assert_allclose(found[begin : begin + tokens.size], expected, atol=2e-5)
        start += tokens.size
    assert start == sum(len(document) - 1 for document in DOCUMENTS)


def test_a_packed_model_is_itself():
    backbone = models.Decoder(SIZE, 30, packed=True)
    assert models.packed(backbone) is backbone


def test_refusals():
    with pytest.raises(ValueError, match="must take 'token_ids' and 'padding_mask'"):
        models.packed(models.Transformer(SIZE, 20, max_sequence_length=8))
    with pytest.raises(ValueError, match="mask"):
        models.packed(models.Gemma2(SIZE, 30, num_key_value_heads=2, key_dim=4))  # Its windows support none.
    with pytest.raises(ValueError, match="mask"):
        models.packed(models.RWKV(SIZE, 30))
