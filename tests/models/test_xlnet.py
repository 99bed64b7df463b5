"""XLNet: parity with transformers' two streams, published sizes, padding, and what a target may know."""

import math
import pathlib

import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.encoders.xlnet import Xlnet
from keras_transformer.checkpoints.layouts import Expanded
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.checkpoints.transfers import make_transfers
from keras_transformer.text import from_huggingface

DATA = pathlib.Path(__file__).parents[1] / "data"
GOLDEN = DATA / "xlnet_two_stream.npz"
CONFIG = Config({"vocab_size": 23, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "model_type": "xlnet"})


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as arrays:
        return {name: arrays[name] for name in arrays}


@pytest.fixture(scope="module")
def backbone():
    return Xlnet().backbone(CONFIG)


@pytest.fixture(scope="module")
def streams(backbone, golden):
    """With the reference's weights, in both."""
    model = models.with_query_stream(backbone)
    entries = [*Xlnet().entries(CONFIG), Entry(("mask_emb",), ("query_stream/mask_embedding",), Expanded(2))]
    for transfer in make_transfers(entries, model):
        tensors = [golden[f"params/{name}"] for name in transfer.theirs]
        values = transfer.layout.read(tensors, transfer.shapes)
        for variable, value in zip(transfer.variables, values, strict=True):
            variable.assign(value)
    return model


def inputs_of(ids, **more):
    return {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool), "segment_ids": np.zeros_like(ids), **more}


def test_reference(streams, backbone, golden):
    ids = golden["inputs/ids"]
    np.testing.assert_allclose(backbone(inputs_of(ids)), golden["outputs/content_only"], atol=1e-5)
    orders = {
        "permutation_mask": golden["inputs/perm_mask"] == 0,
        "targets": golden["inputs/target_mapping"] == 1,
    }
    np.testing.assert_allclose(streams(inputs_of(ids, **orders)), golden["outputs/query_stream"], atol=1e-5)


@pytest.mark.parametrize("size, expected", [("base", 116_718_336), ("large", 360_268_800)])
def test_published_parameters(size, expected):
    with unallocated():
        model = models.with_query_stream(models.XLNet(size))
        assert sum(math.prod(weight.shape) for weight in model.weights if "seed" not in weight.path) == expected


def test_padding_on_either_side_changes_nothing(backbone, streams, golden):
    ids = golden["inputs/ids"][:, :5]
    alone = np.asarray(backbone(inputs_of(ids)))
    for before, after in ((4, 0), (0, 4), (3, 2)):
        padding = [(0, 0), (before, after)]
        padded = inputs_of(np.pad(ids, padding, constant_values=3))
        padded["padding_mask"] = np.pad(np.ones(ids.shape, bool), padding)
        found = np.asarray(backbone(padded))[:, before : before + 5]
        np.testing.assert_allclose(found, alone, atol=1e-5)


def test_texts_of_its_tokenizer_padded_on_the_left():
    """A text is followed by <sep> and <cls>, which is of a segment of its own, and stands at the end of the row."""
    tokenizer = from_huggingface(DATA / "tokenizers" / "xlnet")
    texts = ["The cat sat on the mat.", "A dog", "Rain, and no end of it, all day long"]
    backbone = models.XLNet(models.Size(2, 16, 2, 24), tokenizer.vocabulary_size)
    model = tasks.SequenceClassifier(backbone, 3, pooling="last")
    batch = tokenizer(texts, start=True, end=True)
    closing = tokenizer.token_to_id("<cls>")
    assert not batch["padding_mask"][1, 0]
    assert (batch["token_ids"][:, -1] == closing).all()

    def classified(batch):
        segments = np.where(batch["token_ids"] == closing, 2, 0).astype("int32")
        return np.asarray(model({**batch, "segment_ids": segments}))

    alone = [classified(tokenizer([text], start=True, end=True)) for text in texts]
    np.testing.assert_allclose(classified(batch), np.concatenate(alone), atol=1e-5)
    assert tokenizer.encode_pair("A dog", "sat")[1][-1] == 2


def test_a_target_knows_what_comes_before_it_in_the_order_alone(streams):
    order = np.array([3, 0, 4, 1, 2])  # The rank of each token.
    sees = order[None, :, None] > order[None, None]
    mapping = np.eye(5, dtype=bool)[None, [0, 4]]
    ids = np.array([[5, 6, 7, 8, 9]], "int32")

    def changed(place):
        others = ids.copy()
        others[0, place] = 11
        rows = (inputs_of(x, permutation_mask=sees, targets=mapping) for x in (ids, others))
        first, second = (np.asarray(streams(x))[0] for x in rows)
        return [not np.array_equal(*pair) for pair in zip(first, second, strict=True)]

    # Of rank 3 and of rank 2.
    assert [changed(place) for place in range(5)] == [
        [False, False],
        [True, True],
        [False, False],
        [True, True],
        [True, False],
    ]


def test_a_model_that_is_no_xlnet():
    with pytest.raises(ValueError, match="no XLNet"):
        tasks.PermutationLanguageModel(models.Encoder(models.Size(1, 8, 2, 16), 20))
