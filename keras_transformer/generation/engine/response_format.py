"""The parameter `response_format` of OpenAI's API as a grammar."""

from __future__ import annotations

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.grammar import Grammar
from keras_transformer.generation.grammar.json_schema import JsonSchema
from keras_transformer.utils.types import JsonObject

TYPES = ("text", "json_object", "json_schema")


def read_response_format(given: JsonObject | None) -> Grammar | None:
    """The grammar of a response format.

    Args:
        given: dict with "type": "text"; "json_object", for any JSON object; or "json_schema" with "json_schema", a dict of
            "schema". Its "name", "description" and "strict" change nothing: every schema is obeyed.

    Returns:
        `JsonSchema`; None for text.

    Raises:
        GrammarError: not a response format, an invalid schema, or a keyword of it that is not supported.

    Example:

    >>> read_response_format({"type": "json_object"})
    JsonSchema(schema={'type': 'object'}, compact=False, max_digits=20)
    """
    kind = None if given is None else given.get("type")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return _schema({"type": "object"})
    if kind != "json_schema":
        raise GrammarError(f"The type of a response format must be one of {', '.join(TYPES)}. Received: {kind!r:.80}")
    named = given.get("json_schema")
    if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
        raise GrammarError("A response format of type json_schema needs 'json_schema', an object with a 'schema'.")
    return _schema(named["schema"])


def _schema(schema: JsonObject) -> JsonSchema:
    try:
        return JsonSchema(schema)
    except ImportError as error:
        raise GrammarError(f"This server does not support response formats. {error}") from None
