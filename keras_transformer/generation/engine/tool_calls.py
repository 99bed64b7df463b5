"""The parameters `tools` and `tool_choice` of OpenAI's API, and answers that are calls of tools."""

from __future__ import annotations

import json
import uuid

from keras_transformer.utils.types import JsonObject

WORDS = "'none', 'auto', 'required', or an object with the name of a function"


def is_tools(value: object) -> bool:
    """Whether a value is a list of functions, each with a name and the schema of its arguments."""
    return isinstance(value, list) and all(_is_tool(each) for each in value)


def _is_tool(value: object) -> bool:
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        return False
    return isinstance(function.get("parameters") or {}, dict)


def is_choice(value: object) -> bool:
    """Whether a value is a `tool_choice`.

    Example:

    >>> is_choice("required"), is_choice({"type": "function", "function": {"name": "add"}}), is_choice("add")
    (True, True, False)
    """
    return value in ("none", "auto", "required") or (isinstance(value, dict) and _named(value) is not None)


def _named(choice: JsonObject) -> str | None:
    function = choice.get("function") if choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def call_schema(tools: list[JsonObject] | None, choice: str | JsonObject | None) -> JsonObject | None:
    """The JSON schema of the call that an answer has to be; None where it may be text.

    Args:
        tools: list of tools, checked.
        choice: `tool_choice`, checked.

    Raises:
        ValueError: a call is required, and there are no tools, or none of the name.

    Example:

    >>> tool = {"type": "function", "function": {"name": "now"}}
    >>> call_schema([tool], "required")["properties"]["name"]
    {'enum': ['now']}
    """
    if choice is None or choice in ("none", "auto"):
        return None
    functions = [each["function"] for each in tools or ()]
    if isinstance(choice, dict):
        name = _named(choice)
        functions = [each for each in functions if each["name"] == name]
        if not functions:
            raise ValueError(f"'tool_choice' names {name!r:.80}, which is not among the tools.")
    if not functions:
        raise ValueError("'tool_choice' requires a call, and there are no 'tools'.")
    schemas = [_schema(each) for each in functions]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _schema(function: JsonObject) -> JsonObject:
    arguments = function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}
    return {
        "type": "object",
        "properties": {"name": {"enum": [function["name"]]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def call_of(text: str) -> JsonObject | None:
    """A text as a call of a tool in OpenAI's form; None where it is incomplete.

    Example:

    >>> call_of('{"name": "add", "arguments": {"a": 1}}')["function"]
    {'name': 'add', 'arguments': '{"a": 1}'}
    >>> call_of('{"name": "add", "argu') is None
    True
    """
    try:
        found = json.loads(text)
    except ValueError:
        return None
    function = {"name": found["name"], "arguments": json.dumps(found["arguments"], ensure_ascii=False)}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def with_arguments(calls: object) -> object:
    """The `tool_calls` of a message, with arguments as objects: OpenAI writes them as text, templates expect objects.

    What is no list of calls, or has no JSON object as text, stays as it is.

    Example:

    >>> with_arguments([{"function": {"name": "add", "arguments": '{"a": 1}'}}])
    [{'function': {'name': 'add', 'arguments': {'a': 1}}}]
    """
    return [_with_arguments(each) for each in calls] if isinstance(calls, list) else calls


def _with_arguments(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    text = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(text, str):
        return call
    try:
        found = json.loads(text)
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": found}} if isinstance(found, dict) else call
