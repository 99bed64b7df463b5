"""Generation that retrieves as chunks fill."""

import numpy as np
import pytest

from keras_transformer import generation, models, tasks
from keras_transformer.retrieval import (
    ChunkDatabase,
    Chunks,
    HashedNGrams,
    MeanEmbedding,
    NearestNeighbors,
    RetrievalError,
    with_retrieval,
)

CHUNK, WORDS = 4, 30
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [3, 5], [8, 9, 7, 9]]


@pytest.fixture(scope="module")
def database():
    token_ids = np.random.default_rng(0).integers(0, WORDS, 400)
    chunks, embed, index = Chunks(token_ids, [0, 150, 400], CHUNK), HashedNGrams(sizes=(1, 2)), NearestNeighbors()
    index.add(embed(chunks.tokens(np.arange(len(chunks)))))
    return ChunkDatabase(chunks, index, embed)


@pytest.fixture(scope="module")
def model():
    size = models.Size(2, 16, 2, 32)
    options = {"encoder_size": models.Size(1, 8, 2, 16), "chunk_size": CHUNK, "retrieval_layers": (1, 2)}
    model = tasks.LanguageModel(models.RETRO(size, WORDS, position="rotary", **options))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(0.05, 0.5, weight.shape) for weight in model.get_weights()])
    model.compile(jit_compile=False)
    return model


def log_probs(model, database, text, shown=True):
    """Of each next token, by the whole model, given the neighbors of every full chunk, if they are shown."""
    count = max(len(text) // CHUNK, 1)
    chunks = np.array(text[: count * CHUNK] if len(text) >= CHUNK else [0] * CHUNK).reshape(count, CHUNK)
    neighbors, mask = database.neighbors(chunks, 2, 2 * CHUNK)
    inputs = {
        "token_ids": np.array([text]),
        "padding_mask": np.ones((1, len(text)), bool),
        "neighbor_token_ids": neighbors[None],
        "neighbor_mask": mask[None] & shown,
    }
    logits = np.array(model(inputs), "float64")[0]
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_each_prompt_gives_what_the_whole_model_gives_token_by_token(model, database):
    found = with_retrieval(model.generator(), database).generate(PROMPTS, max_new_tokens=10)
    for prompt, tokens in zip(PROMPTS, found, strict=True):
        # What comes later changes nothing before it: one look at the whole text tells every choice.
        chosen = np.argmax(log_probs(model, database, [*prompt, *tokens]), axis=-1)
        assert tokens == chosen[len(prompt) - 1 : -1].tolist()
    # Nor would the model say the same of neighbors that it is not shown.
    whole = [*PROMPTS[0], *found[0]]
    alone = log_probs(model, database, whole, shown=False)
    assert np.argmax(alone, axis=-1)[len(PROMPTS[0]) - 1 : -1].tolist() != found[0]


def test_beams_keep_their_own_neighbors(model, database):
    beams = generation.BeamSearch(num_beams=3, num_results=3, length_penalty=0.0)
    generator = with_retrieval(model.generator(), database)
    texts, scores = generator.generate(PROMPTS[0], sampler=beams, max_new_tokens=8, return_scores=True)
    for text, score in zip(texts, scores, strict=True):
        whole = [*PROMPTS[0], *text]
        said = log_probs(model, database, whole)[len(PROMPTS[0]) - 1 : -1]
        assert score == pytest.approx(said[np.arange(8), text].sum(), abs=1e-3)


def test_the_same_request_gives_the_same_text(model, database):
    asked = {"max_new_tokens": 12, "sampler": "random", "seed": 4}
    generator = with_retrieval(model.generator(), database)
    texts = generator.generate(PROMPTS, **asked)
    assert with_retrieval(model.generator(), database).generate(PROMPTS, **asked) == texts
    assert list(generator.stream(PROMPTS[0], **asked)) == texts[0]
    assert texts != generator.generate(PROMPTS, **{**asked, "seed": 5})


def test_an_encoders_averages_are_the_keys():
    encoder = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=WORDS)
    token_ids = np.random.default_rng(0).integers(0, WORDS, (5, CHUNK))
    hidden = np.array(encoder({"token_ids": token_ids, "padding_mask": np.ones((5, CHUNK), bool)})).mean(axis=1)
    expected = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    np.testing.assert_allclose(MeanEmbedding(encoder, batch_size=2)(token_ids), expected, atol=1e-5)


def test_refused(model, database):
    with pytest.raises(RetrievalError, match="need 2 tokens per slot. The cache of the model has 4"):
        with_retrieval(model.generator(), database, num_neighbors=1).generate(PROMPTS)
    plain = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), WORDS))
    with pytest.raises(RetrievalError, match="has no neighbor inputs"):
        with_retrieval(plain.generator(), database).generate(PROMPTS)
