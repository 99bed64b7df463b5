"""Formula models with a cache that detects every wrong slot or row."""

import types

import numpy as np
import pytest

from keras_transformer.generation import GenerationSpec
from keras_transformer.generation.decoding_request import ModelOutput

UNWRITTEN = -1


class FormulaSteps:
    """Implements the model protocol of `loop.decode`. The cache stores the tokens, so that a wrong slot is a wrong token.

    Args:
        vocabulary_size: int.
        max_length: int or None.
        is_encoder_decoder: bool.
    """

    def __init__(self, vocabulary_size, max_length=None, is_encoder_decoder=False):
        self.spec = GenerationSpec(vocabulary_size, max_length, is_encoder_decoder)
        # Shapes of the token ids of all calls: the prompts, then every step.
        self.calls = []

    def formula(self, tokens, source):
        """Returns logits `(R, V)` and hidden states `(R, D)` after the tokens `(R, n)`."""
        raise NotImplementedError

    def init_cache(self, batch_size, length, source=None):
        assert (source is not None) == self.spec.is_encoder_decoder
        assert self.spec.max_length is None or length <= self.spec.max_length
        sums = np.zeros((batch_size, 1)) if source is None else np.where(source[1], source[0], 0).sum(axis=1)[:, None]
        return {"tokens": np.full((batch_size, length), UNWRITTEN), "source": sums}

    def prefill(self, token_ids, lengths, cache):
        assert (cache["tokens"] == UNWRITTEN).all()
        self.calls.append(token_ids.shape)
        real = np.arange(token_ids.shape[1]) < lengths[:, None]
        tokens = cache["tokens"].copy()
        tokens[:, : token_ids.shape[1]] = np.where(real, token_ids, UNWRITTEN)
        output = self._read(tokens, np.where(real, np.arange(token_ids.shape[1]), -1), cache["source"])
        last = output.logits[np.arange(len(lengths)), lengths - 1][:, None]
        return ModelOutput(last, output.hidden_states), {**cache, "tokens": tokens}

    def decode_step(self, token_ids, cache, cache_index):
        tokens, (rows, count) = cache["tokens"].copy(), token_ids.shape
        assert len(tokens) == rows == len(cache_index)
        assert token_ids.dtype == cache_index.dtype == np.int32
        assert cache_index.min() >= 0
        assert cache_index.max() + count <= tokens.shape[1]
        self.calls.append(token_ids.shape)
        slots = cache_index[:, None] + np.arange(count)
        np.put_along_axis(tokens, slots, token_ids, axis=1)
        return self._read(tokens, slots, cache["source"]), {**cache, "tokens": tokens}

    def _read(self, tokens, slots, source):
        """Returns the outputs of the formula at each slot `(R, T)`; NaN where the slot is -1."""
        outputs = None
        for end in np.unique(slots[slots >= 0]):
            rows, columns = np.nonzero(slots == end)
            read = tokens[rows, : end + 1]
            assert (read != UNWRITTEN).all(), "a token was skipped"
            found = self.formula(read, source[rows])
            outputs = outputs or [np.full((*slots.shape, each.shape[-1]), np.nan, "float32") for each in found]
            for output, each in zip(outputs, found, strict=True):
                output[rows, columns] = each
        return ModelOutput(*outputs)

    def take_rows(self, cache, rows):
        return {name: array[rows] for name, array in cache.items()}


class HistorySteps(FormulaSteps):
    """Logits that depend on all tokens and their positions: a decaying, uneven sum of random vectors."""

    def __init__(self, vocabulary_size=7, seed=0, scale=2.0, noise=0.0, **options):
        super().__init__(vocabulary_size, **options)
        rng = np.random.default_rng(seed)
        self.vectors, self.head = rng.normal(size=(vocabulary_size, 6)), scale * rng.normal(size=(6, vocabulary_size))
        # A draft model: the model of the same seed with noise.
        self.head = self.head + noise * np.random.default_rng(seed + 1).normal(size=self.head.shape)

    def formula(self, tokens, source):
        positions = np.arange(tokens.shape[1])
        weights = 0.8 ** positions[::-1] * np.cos(2.0 * positions)
        hidden = np.tanh(np.einsum("j,rjd->rd", weights, self.vectors[tokens]) + np.sin(source * np.arange(1, 7)))
        return hidden @ self.head, hidden


class TableSteps(FormulaSteps):
    """Logits from a table indexed by the last two tokens."""

    def __init__(self, table, **options):
        super().__init__(len(table), **options)
        self.table = table

    def formula(self, tokens, source):
        return self.table[tokens[:, -2:][:, 0], tokens[:, -1]], np.zeros((len(tokens), 1))


class ScriptSteps(FormulaSteps):
    """Predicts the next token of a script, independent of the tokens; prompts have one token."""

    def __init__(self, vocabulary_size, script, **options):
        super().__init__(vocabulary_size, **options)
        self.script = script

    def formula(self, tokens, source):
        likely = np.arange(self.spec.vocabulary_size) == self.script[tokens.shape[1] - 1]
        return np.where(likely, 5.0, 0.0)[None].repeat(len(tokens), 0), np.zeros((len(tokens), 1))


@pytest.fixture(scope="session")
def models():
    """Model classes: `History`, `Table`, `Script`."""
    return types.SimpleNamespace(History=HistorySteps, Table=TableSteps, Script=ScriptSteps)
