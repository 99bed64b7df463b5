"""`Generator`: forms of prompts, errors, and independence of rows."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.generation import (
    EmptyPromptError,
    GenerationError,
    Generator,
    MissingTokenizerError,
    PromptTooLongError,
    Random,
)
from keras_transformer.generation.prompts import Prompts
from keras_transformer.text import BytePair, Bytes, Characters, HuggingFaceTokenizer

PROMPTS = [[1], [2, 3, 4, 5, 6], [5, 5, 1], [3, 3], [6, 0, 6, 6]]
SAMPLERS = ["greedy", "random", Random(0.7, top_k=3), "beam", "contrastive"]
TOKENIZER = Characters("abcdefgh ")


def greedy_text(steps, prompt, max_new_tokens, end_id=None, penalty=1.0):
    """Returns greedy tokens, with a full pass for each."""
    text = list(prompt)
    while len(text) < len(prompt) + max_new_tokens:
        logits = steps.formula(np.array([text]), np.zeros((1, 1)))[0][0]
        for token in set(text):
            logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        if logits.argmax() == end_id:
            break
        text.append(int(logits.argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("penalty", [1.0, 1.8])
@pytest.mark.parametrize("seed", [2, 3])
def test_greedy_takes_the_largest_logit_each_time(models, penalty, seed):
    steps = models.History(seed=seed)
    found = Generator(steps, end_id=0).generate(PROMPTS, max_new_tokens=10, repetition_penalty=penalty)
    assert found == [greedy_text(steps, prompt, 10, 0, penalty) for prompt in PROMPTS]
    assert len(set(map(len, found))) > 1


def test_each_of_several_tokens_ends_a_text(models):
    steps, options = models.History(seed=2), {"max_new_tokens": 10}
    whole = Generator(steps).generate(PROMPTS, **options)
    ends = [whole[0][3], whole[1][1]]
    found = Generator(steps, end_id=ends).generate(PROMPTS, **options)
    assert found == [text[: min((text.index(end) for end in ends if end in text), default=10)] for text in whole]


def test_random_has_the_models_distribution(models):
    steps, draws = models.History(vocabulary_size=5, scale=0.7), 20_000
    found = np.array(Generator(steps).generate([[1, 4]] * draws, max_new_tokens=2, sampler="random", seed=0))
    counts = np.zeros((5, 5))
    np.add.at(counts, tuple(found.T), 1)
    expected = np.zeros((5, 5))
    for first, second in itertools.product(range(5), repeat=2):
        logits = [steps.formula(np.array([text]), np.zeros((1, 1)))[0][0] for text in ([1, 4], [1, 4, first])]
        p = [np.exp(each) / np.exp(each).sum() for each in logits]
        expected[first, second] = draws * p[0][first] * p[1][second]
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # 24 degrees of freedom: above 60 once in 15,000.
    assert chi_square < 60


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_batches_are_the_whole(models, sampler):
    generator = Generator(models.History(seed=2), end_id=0)
    options = {"max_new_tokens": 8, "sampler": sampler, "seed": 3, "repetition_penalty": 1.1}
    whole = generator.generate(PROMPTS, **options)
    for batch_size in (1, 2, 3, 100):
        assert generator.generate(PROMPTS, batch_size=batch_size, **options) == whole


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_forms_of_prompts(models, sampler):
    generator = Generator(models.History(seed=2), end_id=0)
    options = {"max_new_tokens": 6, "sampler": sampler, "seed": 3}
    (found,) = generator.generate([[2, 3]], **options)
    assert isinstance(found, list)
    for single in ([2, 3], (2, 3), np.array([2, 3]), np.array([2, 3], "uint8")):
        assert generator.generate(single, **options) == found
    for several in ([np.array([2, 3])], np.array([[2, 3]]), ((2, 3),)):
        assert generator.generate(several, **options) == [found]


def test_seed_reproduces(models):
    generator = Generator(models.History(seed=2, scale=0.5))
    options = {"max_new_tokens": 12, "sampler": "random"}
    found = generator.generate([PROMPTS[0]] * 3, seed=1, **options)
    assert found == generator.generate([PROMPTS[0]] * 3, seed=1, **options)
    assert found[0] == list(generator.stream(PROMPTS[0], seed=1, **options))
    # Equal prompts in one batch, other seeds and no seed give other texts.
    assert len({tuple(row) for row in found}) == 3
    assert found != generator.generate([PROMPTS[0]] * 3, seed=2, **options)
    assert generator.generate(PROMPTS[0], **options) != generator.generate(PROMPTS[0], **options)


def test_reads_what_it_must_and_no_more(models):
    steps = models.History(seed=2, max_length=8)
    assert len(Generator(steps).generate([1, 2, 3], max_new_tokens=5)) == 5
    assert steps.calls == [(1, 3), *[(1, 1)] * 4]


def test_without_max_new_tokens_the_model_is_filled(models):
    prompts = [[1], [1, 2, 3]]
    assert list(map(len, Generator(models.History(max_length=10)).generate(prompts))) == [7, 7]
    assert list(map(len, Generator(models.History()).generate([[1]]))) == [128]


def test_prompt_of_text_begins_with_the_start_token(models):
    steps = models.History(TOKENIZER.vocabulary_size, seed=2)
    start = TOKENIZER.token_to_id("<s>")
    found = Generator(steps, TOKENIZER, start_id=start).generate("abc", max_new_tokens=7)
    assert found == TOKENIZER.decode(greedy_text(steps, [start, *TOKENIZER.encode("abc")], 7))
    ids = Generator(steps, TOKENIZER, start_id=start).generate([7, 8], max_new_tokens=7)
    assert ids == greedy_text(steps, [7, 8], 7)


def test_prompt_of_text_begins_with_the_tokens_of_the_template(models):
    content = BytePair.train(["the cat sat on the mat"], 290)._files()["tokenizer.json"].decode()
    plain = HuggingFaceTokenizer(content)
    processor = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [plain.start_id], "tokens": ["<s>"]}},
    }
    tokenizer = HuggingFaceTokenizer(json.dumps({**json.loads(content), "post_processor": processor}))
    steps, prompt = models.History(tokenizer.vocabulary_size, seed=2), plain.encode("the cat")
    for own, given in ((tokenizer, None), (tokenizer, plain.start_id)):
        found = Generator(steps, own, start_id=given).generate("the cat", max_new_tokens=7)
        assert found == decoded(plain, [plain.start_id, *prompt], greedy_text(steps, [plain.start_id, *prompt], 7))
    found = Generator(steps, plain).generate("the cat", max_new_tokens=7)
    assert found == decoded(plain, prompt, greedy_text(steps, prompt, 7))


def decoded(tokenizer, prompt, tokens):
    """The text that continues a prompt."""
    return tokenizer.decode([*prompt, *tokens])[len(tokenizer.decode(prompt)) :]


def test_encoder_decoder_reads_source_to_its_end_and_begins_with_start(models):
    steps = models.History(TOKENIZER.vocabulary_size, seed=2, is_encoder_decoder=True)
    start, end = (TOKENIZER.token_to_id(token) for token in ("<s>", "</s>"))
    generator = Generator(steps, TOKENIZER, start_id=start, end_id=end)
    found = generator.generate(["abc", "g", "hh hh"], max_new_tokens=6)
    ids = [TOKENIZER.encode(text) + [end] for text in ("abc", "g", "hh hh")]
    assert found == [TOKENIZER.decode(row) for row in generator.generate(ids, max_new_tokens=6)]
    assert len(set(found)) == 3
    for sampler in ("beam", "contrastive"):
        together = generator.generate(ids, max_new_tokens=6, sampler=sampler)
        assert together == [generator.generate(row, max_new_tokens=6, sampler=sampler) for row in ids]
    assert steps.calls[0] == (3, 1)


def test_scores_have_the_structure_of_the_results(models):
    from keras_transformer.generation import BeamSearch

    generator = Generator(models.History(seed=2))
    for num_results in (1, 2):
        sampler = BeamSearch(3, num_results=num_results)
        texts, scores = generator.generate([[1], [2]], max_new_tokens=3, sampler=sampler, return_scores=True)
        single = generator.generate([1], max_new_tokens=3, sampler=sampler, return_scores=True)
        assert single == (texts[0], pytest.approx(scores[0]))
        assert np.shape(scores) == ((2,) if num_results == 1 else (2, 2))
        assert np.shape(texts) == (*np.shape(scores), 3)


def refuses(generator, error, message, *args, **options):
    """Asserts that `generate` and `stream` raise the error before the model runs."""
    several = isinstance(args[0], list) and len(args[0]) > 1 and not isinstance(args[0][0], int)
    for method in (generator.generate,) if several else (generator.generate, generator.stream):
        with pytest.raises(error, match=message):
            method(*args, **options)
    assert generator.steps.calls == []


@pytest.mark.parametrize(
    "prompt, error, message",
    [
        ("", EmptyPromptError, "Prompt 0 is empty"),
        ([], EmptyPromptError, "No prompts"),
        ([[]], EmptyPromptError, "Prompt 0 is empty"),
        (["ab", ""], EmptyPromptError, "Prompt 1 is empty"),
        ([[7], []], EmptyPromptError, "Prompt 1 is empty"),
        (b"ab\xff", GenerationError, "Prompt 0 is not UTF-8 text: .* at 2"),
        (["a", b"\xc3"], GenerationError, "Prompt 1 is not UTF-8"),
        ("ab\ud800", GenerationError, "Prompt 0 is not UTF-8 text: .* at 2"),
        ([1, 14], GenerationError, "Prompt 0 has token ids outside 0 to 13"),
        ([[1], [-1]], GenerationError, "Prompt 1 has token ids outside"),
        (np.array([-7]), GenerationError, "Prompt 0 has token ids outside"),
        (Prompts.of_tokens([1, -7]), GenerationError, "Prompt 0 has token ids outside"),
        ([[2**70]], GenerationError, "Prompt 0 must be text or a list"),
        ([[1, [2]]], GenerationError, "Prompt 0 must be text or a list"),
        (["ab", [1]], GenerationError, "Prompt 1 must be text like the first. Received: list"),
        ([[1], "ab"], GenerationError, "Prompt 1 must be text or a list"),
        ([[1.5]], GenerationError, "Prompt 0 must be text or a list"),
        ([[[1]]], GenerationError, "Prompt 0 must be text or a list"),
        ("abcdef", PromptTooLongError, "Prompt 0 has 6 tokens; with max_new_tokens=5"),
        (["a", "abcdef"], PromptTooLongError, "Prompt 1 has 6 tokens"),
    ],
)
def test_bad_prompts_are_refused_before_any_work(models, prompt, error, message):
    steps = models.History(TOKENIZER.vocabulary_size, max_length=10)
    refuses(Generator(steps, TOKENIZER), error, message, prompt, max_new_tokens=5)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"max_new_tokens": 0}, GenerationError, "max_new_tokens must be a positive integer. Received: 0"),
        ({"max_new_tokens": -3}, GenerationError, "max_new_tokens"),
        ({"max_new_tokens": 2.0}, GenerationError, "max_new_tokens"),
        ({"repetition_penalty": 0.0}, GenerationError, "repetition_penalty"),
        ({"sampler": "nucleus"}, GenerationError, "Unknown sampler 'nucleus'.*greedy, random, beam, contrastive"),
        ({"sampler": 3}, GenerationError, "Expected a sampler"),
        ({"stop": ""}, GenerationError, "stop"),
        ({"stop": [[]]}, GenerationError, "stop"),
        ({"stop": 5}, GenerationError, "stop must be"),
        ({"stop": [1.5]}, GenerationError, "stop must be"),
        ({"stop": [[1.5]]}, GenerationError, "Token ids of stop must be integers"),
        ({"stop": [[-7]]}, GenerationError, "Token ids of stop must be integers of 0 or more"),
        ({"stop": [[None]]}, GenerationError, "Token ids of stop must be integers"),
    ],
)
def test_bad_options_are_refused_before_any_work(models, options, error, message):
    steps = models.History(TOKENIZER.vocabulary_size)
    refuses(Generator(steps, TOKENIZER), error, message, "ab", **{"max_new_tokens": 5, **options})


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(models):
    steps = models.History(TOKENIZER.vocabulary_size - 2)
    ids = [index for index in range(TOKENIZER.vocabulary_size) if TOKENIZER.decode([index])]
    text = TOKENIZER.decode(ids[-1:])
    refuses(Generator(steps, TOKENIZER), GenerationError, "Prompt 0 has token ids outside 0 to", text, max_new_tokens=5)


def test_more_is_refused_before_any_work(models):
    steps = models.History()
    refuses(Generator(steps), MissingTokenizerError, "no tokenizer. Pass token ids", "ab")
    refuses(Generator(steps), MissingTokenizerError, "stop is text", [1], stop="ab")
    with pytest.raises(GenerationError, match="Greedy has no scores"):
        Generator(steps).generate([1], return_scores=True)
    with pytest.raises(GenerationError, match="batch_size"):
        Generator(steps).generate([1], batch_size=0)
    with pytest.raises(GenerationError, match="One prompt at a time"):
        Generator(steps).stream([[1], [2]])
    assert steps.calls == []
    seq2seq = models.History(is_encoder_decoder=True, max_length=4)
    refuses(Generator(seq2seq), GenerationError, "needs a start_id", [1])
    refuses(
        Generator(seq2seq, start_id=1),
        PromptTooLongError,
        "the maximum length of the model is 4",
        [1] * 5,
        max_new_tokens=2,
    )


def test_half_a_character_is_never_streamed(models):
    tokenizer = Bytes()
    for text in ("né€𝄞x", "e\u0301"):
        ids = tokenizer.encode(text)
        steps = models.Script(tokenizer.vocabulary_size, [*ids, *ids])
        generator = Generator(steps, tokenizer)
        pieces = list(generator.stream("a", max_new_tokens=len(ids)))
        assert "".join(pieces) == generator.generate("a", max_new_tokens=len(ids)) == text
        assert pieces == list(text)
    cut = list(generator.stream("a", max_new_tokens=2))
    assert cut == ["e", "\ufffd"]
    assert generator.generate("a", max_new_tokens=2) == "e\ufffd"


def test_import_loads_no_framework():
    code = """
import sys, keras_transformer.generation
found = {"keras", "tensorflow", "torch", "jax", "onnxruntime"} & set(sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)
