"""JSON schemas as grammars."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.grammar import Grammar, library

# Between tokens of JSON: nothing, a space, or a line break with indentation. Without a limit a model may never end.
_WHITESPACE = r"( |\n {0,32})?"
# The "x-guidance" of a schema could ask for these.
_STRICT = {"lenient": False, "coerce_one_of": False}


@dataclasses.dataclass(frozen=True)
class JsonSchema(Grammar):
    """The JSON texts that a JSON schema allows.

    Args:
        schema: dict, or str of JSON: the schema. `{"type": "object"}` allows every object, `{}` every value.
        compact: bool. Whether there is no whitespace between the tokens of JSON. Default False: none, a space, or a line
            break with at most 32 spaces.
        max_digits: int, or None for no limit: the digits in a row after which a number ends, or goes on with a point or an
            exponent. JSON has no limit, and a model that writes 0.333... may never end. Default 20: more than a float64 has.

    Raises:
        GrammarError: `max_digits` below 1, not a JSON schema, or one with a keyword that is not supported, which the
            message names.
        ImportError: `llguidance` is not installed.

    Notes:
        Properties are written in the order of the schema. Keywords that cannot be enforced, such as "not" or "uniqueItems",
        are errors. Where a schema requires more than `max_digits` in a row, it has them. A text ends when its value is
        complete, or at the maximum number of tokens, before that.

    Example:

    >>> JsonSchema({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}).compact
    False

    Reference: JSON Schema, draft 2020-12, as far as the `llguidance` library enforces it.
    """

    schema: object = dataclasses.field(hash=False)
    compact: bool = False
    max_digits: int | None = 20
    source: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max_digits is not None and self.max_digits < 1:
            raise GrammarError(f"max_digits must be 1 or more, or None. Received: {self.max_digits!r}")
        whitespace = {"whitespace_flexible": False} if self.compact else {"whitespace_pattern": _WHITESPACE}
        options = {**_STRICT, **whitespace}
        self._set_source(library().LLMatcher.grammar_from_json_schema(_text(self.schema), overrides=options))


def _text(schema: object) -> str:
    """A JSON schema as JSON."""
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        if isinstance(schema, (Mapping, bool)):
            return json.dumps(schema if isinstance(schema, bool) else dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"JsonSchema: not JSON: {error}") from None
    raise GrammarError(f"JsonSchema: a schema must be a dict, or JSON text of an object. Received: {schema!r:.80}")
