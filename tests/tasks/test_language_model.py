"""A language model generates what its forward pass says, and keeps its tokenizer."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks
from keras_transformer.generation import ForeignTokenizerError, GenerationError, MissingTokenizerError
from keras_transformer.text import Bytes, SentencePiece

SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=32)
PROMPTS = [[7, 3, 9], [4], [5, 5, 5, 8, 2, 1, 9], [6, 2], [3, 1, 4, 1, 5], [2, 7], [9], [1, 8, 2, 8]]


def randomized(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.name in ("kernel", "embeddings"):  # Norms and biases as they are: else one token wins everywhere.
            weight.assign(rng.normal(0, 0.7, weight.shape))
    model.compile("sgd", jit_compile=False)
    return model


@pytest.fixture(scope="module")
def causal():
    backbone = models.Decoder(SIZE, 20, max_sequence_length=24)
    return randomized(tasks.LanguageModel(backbone, tie_embeddings=False, end_id=0))


@pytest.fixture(scope="module")
def translator():
    return randomized(tasks.LanguageModel(models.Transformer(SIZE, 20), start_id=1, end_id=2))


def greedy(model, prompt, count, end_id):
    """By the forward pass alone, the whole text again for every token."""
    tokens = []
    for _ in range(count):
        logits = np.asarray(model(model_inputs(model, prompt, tokens)))[0, -1]
        tokens.append(int(np.argmax(logits)))
        if tokens[-1] == end_id:
            return tokens[:-1]
    return tokens


def model_inputs(model, prompt, tokens):
    def with_mask(ids, side=""):
        ids = np.array([ids], "int32")
        return {f"{side}token_ids": ids, f"{side}padding_mask": np.ones(ids.shape, bool)}

    if not model.is_encoder_decoder:
        return with_mask([*prompt, *tokens])
    return {**with_mask(prompt, "source_"), **with_mask([model.start_id, *tokens], "target_")}


def test_causal_model_continues_as_its_forward_pass_says(causal):
    together = causal.generate(PROMPTS, max_new_tokens=10)
    assert together == [greedy(causal, prompt, 10, end_id=0) for prompt in PROMPTS]
    assert len({tuple(tokens) for tokens in together}) > 3, "the model says the same to all"
    assert together == [causal.generate(prompt, max_new_tokens=10) for prompt in PROMPTS]


def test_encoder_decoder_answers_as_its_forward_pass_says(translator):
    together = translator.generate(PROMPTS, max_new_tokens=8)
    assert together == [greedy(translator, prompt, 8, end_id=2) for prompt in PROMPTS]
    assert together == [translator.generate(prompt, max_new_tokens=8) for prompt in PROMPTS]


@pytest.mark.exhaustive
def test_compiled_with_xla_is_the_same(causal):
    plain = causal.generate(PROMPTS[:3], max_new_tokens=6)
    causal.compile("sgd", jit_compile=True)
    try:
        assert causal.generate(PROMPTS[:3], max_new_tokens=6) == plain
    finally:
        causal.compile("sgd", jit_compile=False)


def test_prefill_and_decode_step_are_pure(causal):
    ids, lengths = np.array([[7, 3, 9, 0], [4, 5, 0, 0]], "int32"), np.array([3, 2], "int32")
    empty = causal.init_cache(2, max_length=8)
    first, _, cache = causal.prefill(ids, lengths, empty)
    assert all(not np.asarray(tensor).any() for tensor in empty.values())
    again, _, _ = causal.prefill(ids, lengths, empty)
    np.testing.assert_array_equal(first, again)
    before = {name: np.array(tensor) for name, tensor in cache.items()}
    causal.decode_step(np.array([[1], [2]], "int32"), cache, lengths)
    for name, tensor in cache.items():
        np.testing.assert_array_equal(tensor, before[name])


def test_saved_with_its_tokenizer(tmp_path):
    tokenizer = Bytes()
    model = tasks.LanguageModel(models.Decoder(SIZE, tokenizer.vocabulary_size), tokenizer=tokenizer)
    model = randomized(model)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    loaded.compile("sgd", jit_compile=False)
    assert loaded.tokenizer.fingerprint == tokenizer.fingerprint
    assert loaded.end_id == tokenizer.end_id
    assert loaded.generate("Was nun?", max_new_tokens=5) == model.generate("Was nun?", max_new_tokens=5)


def test_soft_caps_of_logits_are_part_of_every_step():
    backbone = models.Decoder(SIZE, 20)
    plain = randomized(tasks.LanguageModel(backbone))
    capped = tasks.LanguageModel(backbone, logit_soft_cap=0.5)
    tokens, mask = np.array([[3, 1, 4, 1]], "int32"), np.ones((1, 4), bool)
    inputs = {"token_ids": tokens, "padding_mask": mask}
    expected = 0.5 * np.tanh(np.asarray(plain(inputs), "float64") / 0.5)
    assert np.abs(expected).max() < 0.5
    np.testing.assert_allclose(capped(inputs), expected, atol=1e-6)
    logits, _, _ = capped.prefill(tokens, np.array([4], "int32"), capped.init_cache(1, 4))
    np.testing.assert_allclose(logits[:, 0], expected[:, -1], atol=1e-5)
    assert capped.get_config()["logit_soft_cap"] == 0.5


def test_arguments_survive_the_config():
    model = tasks.LanguageModel(models.Decoder(SIZE, 20), tie_embeddings=False, start_id=3, end_id=[4, 5], name="other")
    config = tasks.LanguageModel.from_config(model.get_config()).get_config()
    assert {name: config[name] for name in ("tie_embeddings", "start_id", "end_id", "name")} == {
        "tie_embeddings": False,
        "start_id": 3,
        "end_id": (4, 5),
        "name": "other",
    }


def test_start_id_comes_before_text_only():
    tokenizer = Bytes()
    backbone = models.Decoder(SIZE, tokenizer.vocabulary_size)
    plain = randomized(tasks.LanguageModel(backbone, tokenizer=tokenizer))
    begun = tasks.LanguageModel(backbone, tokenizer=tokenizer, start_id=1)
    begun.compile("sgd", jit_compile=False)
    ids = tokenizer.encode("ab")
    expected = tokenizer.decode(plain.generate([1, *ids], max_new_tokens=4))
    assert begun.generate("ab", max_new_tokens=4) == expected
    assert begun.generate(ids, max_new_tokens=4) == plain.generate(ids, max_new_tokens=4)


def test_training_then_generating_uses_the_new_weights():
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 16, 2, 32), 7, max_sequence_length=12))
    model.compile(
        keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
    )
    model.generate([0, 1], max_new_tokens=2)  # Traced before training: the weights must not be frozen in.
    ids = np.tile(np.arange(10) % 7, (8, 1)).astype("int32")
    inputs = {"token_ids": ids[:, :-1], "padding_mask": np.ones((8, 9), bool)}
    model.fit(inputs, ids[:, 1:], epochs=60, verbose=0)
    assert model.generate([0, 1, 2], max_new_tokens=6) == [3, 4, 5, 6, 0, 1]


@pytest.mark.parametrize(
    "prompt, options, error, message",
    [
        ([1] * 20, {"max_new_tokens": 5}, GenerationError, "20 tokens.*24"),
        ([1], {"max_new_tokens": 0}, GenerationError, "max_new_tokens"),
        ("text", {}, MissingTokenizerError, "no tokenizer"),
        ([20], {}, GenerationError, "outside 0 to 19"),
    ],
)
def test_errors_come_before_anything_runs(causal, monkeypatch, prompt, options, error, message):
    monkeypatch.setattr(type(causal.generator().steps), "init_cache", lambda *_: pytest.fail("work was done"))
    with pytest.raises(error, match=message):
        causal.generate(prompt, **options)


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused():
    with pytest.raises(ForeignTokenizerError, match="built for 20"):
        tasks.LanguageModel(models.Decoder(SIZE, 20), tokenizer=Bytes())


def test_stepwise_is_refused_for_a_model_that_is_not_causal():
    with pytest.raises(ValueError, match="mixes tokens"):
        tasks.LanguageModel(models.Encoder(SIZE, 20)).generate([1, 2])


def test_a_text_begins_with_the_space_that_joins_it_to_its_prompt():
    """SentencePiece leaves out a text's first space; the continuation of a prompt is not the beginning of a text."""
    tokenizer = SentencePiece.train(["the king said the king went the queen said no"] * 5, 285)
    model = randomized(tasks.LanguageModel(models.Decoder(SIZE, tokenizer.vocabulary_size), tokenizer=tokenizer))
    prompt = "the king"
    ids = tokenizer.encode(prompt)
    for count in (1, 4, 12):
        tokens = model.generate(ids, max_new_tokens=count)
        text = model.generate(prompt, max_new_tokens=count)
        assert prompt + text == tokenizer.decode([*ids, *tokens])
        assert "".join(model.stream(prompt, max_new_tokens=count)) == text
