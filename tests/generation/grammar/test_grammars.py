"""Generated texts obey their grammar, with every sampler, tokenizer and end of text."""

import itertools
import json
import re

import jsonschema
import numpy as np
import pytest

from keras_transformer import models as architectures
from keras_transformer import tasks
from keras_transformer.generation import (
    BeamSearch,
    Contrastive,
    Generator,
    GrammarError,
    JsonSchema,
    Lark,
    MissingTokenizerError,
    Random,
    Regex,
    Speculative,
    TreeSearch,
)
from keras_transformer.generation.grammar.constraint import Constraint
from keras_transformer.generation.grammar.grammar import library
from keras_transformer.generation.grammar.token_bytes import TokenBytes
from keras_transformer.text import BytePair, Bytes, Characters, HuggingFaceTokenizer, SentencePiece

PROMPTS = ["ab", "hello there", "{", "é"]
WORD = {"type": "string", "maxLength": 4}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def record(*required, closed=True, **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        **({"additionalProperties": False} if closed else {}),
    }


SCHEMAS = {
    "true": {"type": "boolean"},
    "null": {"type": "null"},
    "constant": {"const": {"a": [1, "two", None]}},
    "words": {"enum": ["red", "green", "blue sky", 'quo"te', "żółć"]},
    "mixed": {"enum": [1, "one", None, True, [1]]},
    "integer": {"type": "integer", "minimum": -120, "maximum": 450},
    "open_range": {"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 10},
    "number": {"type": "number", "minimum": 0, "maximum": 1},
    "multiple": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 95},
    "string": {"type": "string", "maxLength": 6},
    "exact_length": {"type": "string", "minLength": 3, "maxLength": 3},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "pattern_part": {"type": "string", "pattern": "^(a|bc)d", "maxLength": 5},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time", "maxLength": 20},
    "address": {"type": "string", "format": "ipv4"},
    "uuid": {"type": "string", "format": "uuid"},
    "union": {"type": ["integer", "boolean", "null"], "minimum": 0, "maximum": 99},
    "any_of": {"anyOf": [{"const": "x"}, record("y", y=DIGIT)]},
    "all_of": {"allOf": [record("a", closed=False, a=DIGIT), record("b", closed=False, b=DIGIT)], "maxProperties": 2},
    "object": record("name", "age", name=WORD, age={"type": "integer", "minimum": 0, "maximum": 120}),
    "optional": record("b", a=DIGIT, b=DIGIT, c={"enum": ["x", "y"]}),
    "nested": record("in", **{"in": record("deep", deep=record("v", v={"enum": [True, False]}))}),
    "array": {"type": "array", "items": DIGIT, "minItems": 2, "maxItems": 4},
    "no_items": {"type": "array", "maxItems": 0},
    "tuple": {"type": "array", "prefixItems": [DIGIT, WORD], "items": False, "minItems": 2},
    "records": {"type": "array", "items": record("id", id=DIGIT), "minItems": 1, "maxItems": 2},
    "map": {"type": "object", "additionalProperties": DIGIT, "maxProperties": 0},
    "reference": {"$ref": "#/$defs/pair", "$defs": {"pair": {"type": "array", "items": DIGIT, "maxItems": 2}}},
    "recursive": {"$defs": {"n": record("v", v=DIGIT, next={"$ref": "#/$defs/n"})}, "$ref": "#/$defs/n"},
    "escapes": {"const": 'line\nbreak "quoted" \\ tab\t\u0001'},
    "empty_object": record(),
}
PAIR = {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2, "maxItems": 2}
PATTERNS = [
    "yes|no",
    "[a-c]{3}",
    r"\d{4}-\d{2}",
    r"(ab)+c?d{2,3}",
    "[^a-z]{2}",
    r"[a-z0-9_]{1,5}@[a-z]{1,5}\.(com|org)",
    "żółć|😀{2}",
    r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,2})?",
    r"[A-Z][a-z]{1,8}( [A-Z][a-z]{1,8}){0,2}",
    "(?i:hello) (there|world)!",
    r"\{\"a\": [01]\}",
    "a?",
]
SAMPLERS = [
    "greedy",
    Random(),
    Random(0.7, top_k=5, top_p=0.9, min_p=0.01),
    BeamSearch(3),
    Contrastive(6, 0.9),
    TreeSearch(num_simulations=5, num_leaves=2, rollout_length=2),
]


def language_model(tokenizer, end_id, seed=0):
    size = architectures.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=24)
    backbone = architectures.Decoder(size, tokenizer.vocabulary_size, position="rotary")
    model, random = tasks.LanguageModel(backbone, tokenizer=tokenizer, end_id=end_id), np.random.default_rng(seed)
    model.end_id = end_id
    model.compile(jit_compile=False)
    for weight in model.weights:
        weight.assign(random.normal(0, 0.6, weight.shape))
    return model


@pytest.fixture(scope="module")
def model():
    """A model with random weights and one token for each byte."""
    return language_model(Bytes(), Bytes().end_id)


@pytest.fixture(scope="module")
def draft():
    return language_model(Bytes(), Bytes().end_id, seed=1)


@pytest.fixture(scope="module")
def pairs():
    """A model with a byte-level BPE."""
    source = BytePair.train(['{"name": "the cat sat on the mat", "age": 12}'] * 3, 320)
    tokenizer = HuggingFaceTokenizer(source._files()["tokenizer.json"].decode(), source.special_tokens)
    return language_model(tokenizer, tokenizer.end_id)


def check_schema(text, schema):
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(text))


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_is_valid(model, name):
    grammar = JsonSchema(SCHEMAS[name])
    texts = model.generate(PROMPTS, grammar=grammar, sampler="random", seed=3, max_new_tokens=500)
    for text in texts:
        check_schema(text, SCHEMAS[name])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_text_matches_the_expression(model, pattern):
    texts = model.generate(PROMPTS, grammar=Regex(pattern), sampler="random", seed=5, max_new_tokens=300)
    assert [text for text in texts if not re.fullmatch(pattern, text)] == []


def test_text_is_of_the_lark_grammar(model):
    grammar = Lark('start: NUMBER ("+" NUMBER){1,3}\nNUMBER: /[0-9]{1,2}/')
    texts = model.generate(PROMPTS, grammar=grammar, sampler="random", max_new_tokens=20)
    assert all(re.fullmatch(r"[0-9]{1,2}(\+[0-9]{1,2}){1,3}", text) for text in texts)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: str(each)[:12])
@pytest.mark.parametrize("vocabulary", ["model", "pairs"])
def test_every_sampler_obeys_and_a_batch_is_each_prompt_alone(request, sampler, vocabulary):
    model, schema = request.getfixturevalue(vocabulary), SCHEMAS["object"]
    options = {"grammar": JsonSchema(schema, compact=True), "sampler": sampler, "max_new_tokens": 60}
    texts = model.generate(PROMPTS, **options, seed=7)
    for text in texts:
        check_schema(text, schema)
    assert len(set(texts)) > 1
    assert texts[0] == model.generate([PROMPTS[0]], **options, seed=7)[0]
    if isinstance(sampler, str):
        assert texts == [model.generate(prompt, **options) for prompt in PROMPTS]


@pytest.mark.parametrize("sampler", ["greedy", Random()])
def test_speculative_decoding_obeys(model, draft, sampler):
    options = {"grammar": JsonSchema(SCHEMAS["optional"], compact=True), "max_new_tokens": 50, "seed": 2}
    texts = model.generate(PROMPTS, sampler=Speculative(draft, sampler=sampler), **options)
    for text in texts:
        check_schema(text, SCHEMAS["optional"])
    if sampler == "greedy":
        assert texts == model.generate(PROMPTS, **options)


def test_a_draft_proposes_what_the_grammar_allows(model):
    sampler = Speculative(model, num_draft_tokens=3)
    model.generate("ab", grammar=Regex("[a-z]{28}"), sampler=sampler, max_new_tokens=40)
    assert sampler.accepted_per_step == 3


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: str(each)[:12])
@pytest.mark.parametrize("has_end", [True, False])
def test_a_grammar_of_one_text_gives_that_text(sampler, has_end):
    model, text = language_model(Bytes(), Bytes().end_id if has_end else None), '{"naïve": "żółć 😀"}'
    assert model.generate("ab", grammar=Regex(re.escape(text)), sampler=sampler, max_new_tokens=40) == text


TEXT = 'the cat "sat" on {the mat}, naïve 😀!'
TOKENIZERS = {
    "bytes": lambda: Bytes(),
    "characters": lambda: Characters(sorted(set(TEXT))),
    "characters_and_bytes": lambda: Characters("abc", byte_fallback=True),
    "byte_pair": lambda: BytePair.train([TEXT] * 3, 320),
    "unigram": lambda: SentencePiece.train([TEXT] * 30, 320),
    "lossless": lambda: SentencePiece.train([TEXT] * 30, 320, lossless=True),
    "sentencepiece_bpe": lambda: SentencePiece.train([TEXT] * 30, 320, model_type="bpe"),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_tokenizer(kind, models):
    tokenizer = TOKENIZERS[kind]()
    generator = Generator(models.History(tokenizer.vocabulary_size + 3), tokenizer, end_id=tokenizer.end_id)
    found = generator.generate(["the", "cat"], grammar=Regex(re.escape(TEXT) + "(a|b)"), max_new_tokens=90)
    assert {text[:-1] for text in found} == {TEXT}
    assert "".join(generator.stream("the", grammar=Regex(re.escape(TEXT) + "(a|b)"), max_new_tokens=90)) == found[0]


def constrained(steps, prompt, texts):
    """Log-probabilities of token sequences where each token is one that some sequence goes on with."""
    found = {}
    for text in texts:
        total = 0.0
        for index in range(len(text)):
            allowed = sorted({each[index] for each in texts if each[:index] == text[:index] and len(each) > index})
            logits = steps.formula(np.array([[*prompt, *text[:index]]]), np.zeros((1, 1)))[0][0][allowed]
            total += logits[allowed.index(text[index])] - np.log(np.exp(logits).sum())
        found[text] = total
    return found


def test_beams_are_the_most_likely_texts_of_the_grammar(models):
    tokenizer = Characters("abcd")
    steps = models.History(tokenizer.vocabulary_size, seed=4)
    texts = [
        (*tokenizer.encode("a" + "".join(middle) + last), tokenizer.end_id)
        for middle in itertools.product("bcd", repeat=2)
        for last in "ad"
    ]
    prompt = tokenizer.encode("bd")
    expected = sorted(constrained(steps, prompt, texts).items(), key=lambda item: -item[1])
    sampler = BeamSearch(18, length_penalty=0.0, num_results=5, early_stopping="never")
    found, scores = Generator(steps, tokenizer, end_id=tokenizer.end_id).generate(
        "bd", grammar=Regex("a[bcd]{2}[ad]"), sampler=sampler, max_new_tokens=6, return_scores=True
    )
    assert found == [tokenizer.decode(tokens) for tokens, _ in expected[:5]]
    np.testing.assert_allclose(scores, [score for _, score in expected[:5]], rtol=1e-5)


def test_beams_that_part_and_die_keep_their_own_state(model):
    schema = {"anyOf": [SCHEMAS["object"], SCHEMAS["array"], SCHEMAS["pattern"]]}
    options = {"sampler": BeamSearch(6, num_results=6), "grammar": JsonSchema(schema), "max_new_tokens": 60}
    results = model.generate(PROMPTS, **options)
    for texts in results:
        assert len(set(texts)) == len(texts) > 1
        for text in texts:
            check_schema(text, schema)
    assert results[2] == model.generate(PROMPTS[2], **options)


def test_the_end_token_comes_only_where_the_grammar_accepts(models):
    tokenizer = Characters("ab")
    steps = models.Script(tokenizer.vocabulary_size, [tokenizer.end_id] * 10)
    generator = Generator(steps, tokenizer, end_id=[tokenizer.end_id, tokenizer.pad_id])
    assert generator.generate("a", grammar=Regex("a{2,4}b?"), max_new_tokens=8) == "aa"
    steps.script = [tokenizer.pad_id] * 10  # The other end token.
    assert generator.generate("a", grammar=Regex("a{2,4}b?"), max_new_tokens=8) == "aa"
    assert generator.generate("a", grammar=Regex("a{0,4}"), max_new_tokens=8) == ""


def test_an_encoder_decoder_writes_the_grammar(models):
    tokenizer = Characters("abcd")
    steps = models.History(tokenizer.vocabulary_size, is_encoder_decoder=True)
    generator = Generator(steps, tokenizer, start_id=tokenizer.start_id, end_id=tokenizer.end_id)
    texts = generator.generate(["ab", "dcba"], grammar=Regex("[a-d]{3}(ab|cd)"), max_new_tokens=9)
    assert all(re.fullmatch("[a-d]{3}(ab|cd)", text) for text in texts)


def test_a_text_is_cut_at_the_maximum_number_of_tokens(model):
    assert len(model.generate([3, 4], grammar=Regex("[a-z]{9}"), max_new_tokens=5)) == 5


def test_results_are_tokens_for_prompts_of_tokens(model):
    found = model.generate([3, 4], grammar=Regex("cat"), max_new_tokens=9)
    assert found == model.tokenizer.encode("cat")


def test_the_text_is_what_the_grammar_has_read():
    """The tokenizer would drop the first space, and the one before the period."""
    source = BytePair.train([TEXT] * 3, 300)
    content = source._files()["tokenizer.json"].decode()
    tokenizer = HuggingFaceTokenizer(content, source.special_tokens, clean_up_spaces=True)
    model = language_model(tokenizer, tokenizer.end_id)
    assert tokenizer.decode(tokenizer.encode("a .")) == "a."
    assert model.generate("the", grammar=Regex(r" a \."), max_new_tokens=9) == " a ."


def test_whitespace_is_limited(model):
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": False}
    texts = model.generate(PROMPTS * 4, grammar=JsonSchema(schema), sampler="random", seed=0, max_new_tokens=300)
    assert {json.dumps(json.loads(text)) for text in texts} == {'{"a": null}'}
    assert any(" " in text for text in texts)
    assert all(re.search(r"\n {33}|  (?! *\S)\n|\n\n", text) is None for text in texts)
    assert set(model.generate(PROMPTS, grammar=JsonSchema(schema, compact=True), max_new_tokens=30)) == {'{"a":null}'}


@pytest.mark.parametrize(
    "schema, max_digits, expected",
    [
        (PAIR, 4, "[3333.3333,3333.3333]"),
        (PAIR, 20, f"[{'3' * 20}.{'3' * 20},{'3' * 17}"),
        (PAIR, None, "[" + "3" * 59),
        # Nothing but a digit may follow: the schema counts.
        ({"type": "string", "pattern": "^[0-9]{9}x$"}, 4, '"333333333x"'),
    ],
)
def test_a_number_ends_after_too_many_digits(schema, max_digits, expected):
    vocabulary = Bytes()
    logits = np.full((1, vocabulary.vocabulary_size), -8.0)
    logits[0, vocabulary.encode("3.,]")] = 8.0, 4.0, 2.0, 2.0  # A model that writes digits as long as it may.
    grammar = JsonSchema(schema, compact=True, max_digits=max_digits)
    constraint = Constraint(grammar, TokenBytes.of(vocabulary, logits.shape[1], [vocabulary.end_id]))
    tokens = []
    while len(tokens) < 60 and (token := int(constraint.apply(logits, [tokens]).argmax())) != vocabulary.end_id:
        tokens.append(token)
    assert vocabulary.decode(tokens) == expected
    with pytest.raises(GrammarError, match="max_digits must be 1"):
        JsonSchema(schema, max_digits=0)


def test_the_repetition_penalty_comes_on_top(model):
    options = {"grammar": Regex("[a-z]{12}"), "max_new_tokens": 13}
    plain, penalized = model.generate("q", **options), model.generate("q", repetition_penalty=50.0, **options)
    assert re.fullmatch("[a-z]{12}", penalized)
    assert plain != penalized


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Regex("(?=a)b"), "look-around"),
        (lambda: Regex("a("), "unclosed group"),
        (lambda: Regex(3), "must be str"),
        (lambda: JsonSchema({"type": "strin"}), "Invalid type: strin"),
        (lambda: JsonSchema({"not": {"type": "string"}}), '"not"'),
        (lambda: JsonSchema({"type": "array", "uniqueItems": True}), '"uniqueItems"'),
        (lambda: JsonSchema({"type": "string", "pattern": "(?=x)"}), "look-around"),
        (lambda: JsonSchema({"not": {}, "x-guidance": {"lenient": True}}), '"not"'),
        (lambda: JsonSchema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "oneOf"),
        (lambda: JsonSchema({"enum": []}), "Unsatisfiable"),
        (lambda: JsonSchema("{"), "not JSON"),
        (lambda: JsonSchema([1]), "must be a dict"),
        (lambda: JsonSchema({"const": object()}), "not JSON"),
        (lambda: Lark("start: foo"), 'unknown name: "foo"'),
        (lambda: Lark(b"start: /a/"), "must be str"),
    ],
)
def test_an_unsupported_grammar_is_named_in_one_line(make, words):
    with pytest.raises(GrammarError, match=re.escape(words)) as caught:
        make()
    assert "\n" not in str(caught.value)


class NoModel:
    """Steps that must not run."""

    def __init__(self, spec):
        self.spec = spec


@pytest.mark.parametrize(
    "tokenizer, options, error, words",
    [
        (None, {"grammar": Regex("a")}, MissingTokenizerError, "no tokenizer"),
        (Bytes(), {"grammar": "a"}, GrammarError, "JsonSchema, a Regex or a Lark"),
        (Bytes(), {"grammar": Regex("a"), "stop": "b"}, GrammarError, "stop"),
        (Bytes(), {"grammar": Regex("")}, GrammarError, "end token"),
        (Bytes(), {"grammar": Lark("start: <none>")}, GrammarError, "unknown special token"),
        (Characters("abc"), {"grammar": JsonSchema({"type": "object"})}, GrammarError, "no tokens write '{'"),
        (Characters("abc"), {"grammar": Regex("[xyz]+")}, GrammarError, "no tokens write"),
        (object(), {"grammar": Regex("a")}, GrammarError, "object has no token_bytes()"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_errors_before_the_model_runs(models, tokenizer, options, error, words):
    generator = Generator(NoModel(models.History(300).spec), tokenizer)
    for call in (generator.generate, generator.stream, generator.plan):
        with pytest.raises(error, match=re.escape(words)):
            call([5, 6], **options)


def test_a_dead_end_is_an_error(models):
    generator = Generator(models.History(9), Characters("ab"), end_id=3)
    with pytest.raises(GrammarError, match="no tokens write"):
        generator.generate("a", grammar=Regex("ab[xy]"), max_new_tokens=5)


def test_a_missing_library_has_its_install_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    library.cache_clear()
    try:
        with pytest.raises(ImportError, match=r"\[grammar\]"):
            Regex("a")
    finally:
        library.cache_clear()


def test_grammars_are_values():
    schema = {"type": "integer"}
    assert JsonSchema(schema) == JsonSchema(dict(schema)) != JsonSchema(schema, compact=True)
    assert len({JsonSchema(schema), JsonSchema(dict(schema)), Regex("a"), Regex("a"), Lark("start: /a/")}) == 3
