"""Decoders with sinks and a window: what the model computes up to the size of the cache, and texts that go on beyond it."""

import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.attention import LocalAttention, MultiHeadAttention, SoftmaxAttention, StreamingAttention
from keras_transformer.positions import Rotary

WINDOW, SINKS = 4, 2


def decoder(**options):
    attention = [
        MultiHeadAttention(2, 8, position=Rotary(50.0), mechanism=SoftmaxAttention(dropout=0.25)),
        MultiHeadAttention(2, 8, position=Rotary(50.0), mechanism=LocalAttention(3)),
    ]
    options = {"position": None, "attention": attention, "dropout": 0.0, **options}
    backbone = models.Decoder(models.Size(2, 16, 2, 24), 19, **options)
    rng = np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(rng.normal(0, 0.4, weight.shape))
    return backbone


def outputs(model, ids):
    return np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))


def test_computes_what_the_model_computes_up_to_its_size():
    model = decoder()
    copy = models.with_streaming(model, WINDOW, SINKS)
    mechanisms = [copy.get_layer(f"decoder_block_{index}").mixer.mechanism for index in range(2)]
    assert [type(each) for each in mechanisms] == [StreamingAttention, LocalAttention]
    assert (mechanisms[0].window, mechanisms[0].num_sinks, mechanisms[0].dropout) == (WINDOW, SINKS, 0.25)
    ids = np.random.default_rng(1).integers(0, 19, (2, 20)).astype("int32")
    expected, found = outputs(model, ids), outputs(copy, ids)
    np.testing.assert_allclose(found[:, : WINDOW + SINKS], expected[:, : WINDOW + SINKS], atol=1e-5)
    assert np.abs(found - expected)[:, WINDOW + SINKS :].max() > 1e-2
    assert type(model.get_layer("decoder_block_0").mixer.mechanism) is SoftmaxAttention


def test_texts_go_on_beyond_the_cache():
    model = models.with_streaming(tasks.LanguageModel(decoder()), WINDOW, SINKS)
    assert isinstance(model, tasks.LanguageModel)
    sizes = [{name: tensor.shape for name, tensor in model.init_cache(1, length).items()} for length in (8, 800)]
    assert sizes[0] == sizes[1]
    copy, ids = models.with_streaming(decoder(), WINDOW, SINKS), np.random.default_rng(1).integers(0, 19, (2, 24))
    steps, start, found = models.Stepwise(copy), 0, []
    cache = steps.init_cache(2, max_length=1)
    for size in (11, 1, 1, 1, 10):
        part = ids[:, start : start + size].astype("int32")
        output, cache = steps(part, cache, np.full(2, start, "int32"))
        found.append(np.asarray(output))
        start += size
    np.testing.assert_allclose(np.concatenate(found, axis=1), outputs(copy, ids.astype("int32")), atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"attention": "local"}, "no blocks with full"),
        ({"attention": MultiHeadAttention(2, 8, mechanism=SoftmaxAttention(use_sinks=True))}, "learned sinks"),
        ({"attention": None, "position": "alibi"}, "biases"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        models.with_streaming(decoder(**options))
