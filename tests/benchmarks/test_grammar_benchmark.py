"""The random schemas of the benchmark: answers of random tokens obey them."""

import json
import pathlib
import sys

import jsonschema
import numpy as np
import pytest

from keras_transformer.generation import JsonSchema
from keras_transformer.generation.grammar.constraint import Constraint
from keras_transformer.generation.grammar.token_bytes import TokenBytes
from keras_transformer.text import BytePair

sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))
import grammar as benchmark

MAKER = benchmark.SchemaMaker(seed=1)
SCHEMAS = [MAKER.object() for _ in range(60)]


@pytest.fixture(scope="module")
def vocabulary():
    tokenizer = BytePair.train([json.dumps(schema) for schema in SCHEMAS], 500)
    return TokenBytes.of(tokenizer, tokenizer.vocabulary_size, [tokenizer.end_id])


def test_random_tokens_obey(vocabulary):
    random = np.random.default_rng(0)
    (end,) = vocabulary.end_ids
    for schema in SCHEMAS:
        constraint, tokens = Constraint(JsonSchema(schema), vocabulary), []
        while not tokens or tokens[-1] != end:
            logits = constraint.apply(random.normal(size=(1, vocabulary.size)), [tokens])
            tokens.append(int(logits[0].argmax()))
            assert len(tokens) < 3000
        jsonschema.validate(json.loads(vocabulary.text.decode(tokens)), schema)


def test_schemas_are_of_many_kinds():
    written = json.dumps(SCHEMAS)
    for word in ("enum", "pattern", "minimum", "number", "array", "boolean", '"properties": {"', "maxLength"):
        assert word in written
    assert any(len(schema["required"]) < len(schema["properties"]) for schema in SCHEMAS)


@pytest.mark.parametrize(
    "text, expected",
    [('{"a": 1}', True), ('```json\n{"a": 1}\n```', True), ('{"a": "x"}', False), ('{"a": 1', False), ("Sure!", False)],
)
def test_an_answer_may_be_a_block_of_code(text, expected):
    assert benchmark.is_valid(text, {"type": "object", "properties": {"a": {"type": "integer"}}}) == expected
