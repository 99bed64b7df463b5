"""The parameter `response_format` of OpenAI's API as a grammar."""

from __future__ import annotations

from keras_transformer.generation.errors import GrammarError
from keras_transformer.generation.grammar.grammar import Grammar
from keras_transformer.generation.grammar.json_schema import JsonSchema
from keras_transformer.utils.types import JsonObject

TYPES = ("text", "json_object", "json_schema")
# The time of a grammar grows with the square of the number of properties: these take some tenths of a second.
MAX_PARTS = 2000


def read_response_format(given: JsonObject | None, compact: bool = False) -> Grammar | None:
    """The grammar of a response format.

    Args:
        given: dict with "type": "text"; "json_object", for any JSON object; or "json_schema" with "json_schema", a dict of
            "schema". Its "name", "description" and "strict" change nothing: every schema is obeyed.

        compact: bool. Whether the JSON has no whitespace. Default False.

    Returns:
        `JsonSchema`; None for text.

    Raises:
        GrammarError: not a response format, a schema of more than `MAX_PARTS` parts, an invalid one, or a keyword of it that
            is not supported.

    Example:

    >>> read_response_format({"type": "json_object"})
    JsonSchema(schema={'type': 'object'}, compact=False, max_digits=20)
    """
    kind = None if given is None else given.get("type")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return _schema({"type": "object"}, compact)
    if kind != "json_schema":
        raise GrammarError(f"The type of a response format must be one of {', '.join(TYPES)}. Received: {kind!r:.80}")
    named = given.get("json_schema")
    if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
        raise GrammarError("A response format of type json_schema needs 'json_schema', an object with a 'schema'.")
    return _schema(named["schema"], compact)


def _num_parts(value: object) -> int:
    """The number of values in objects and lists."""
    count, unread = 0, [value]
    while unread:
        each = unread.pop()
        found = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else []
        count += len(found)
        unread += found
    return count


def _schema(schema: JsonObject, compact: bool) -> JsonSchema:
    parts = _num_parts(schema)
    if parts > MAX_PARTS:
        raise GrammarError(f"The schema has {parts} properties and items; at most {MAX_PARTS}.")
    try:
        return JsonSchema(schema, compact=compact)
    except ImportError as error:
        raise GrammarError(f"This server does not support response formats. {error}") from None
