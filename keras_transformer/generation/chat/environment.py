"""The sandbox in which chat templates of unknown origin run."""

from __future__ import annotations

import datetime
import functools
import json
from typing import TYPE_CHECKING, Any, NoReturn

from keras_transformer.generation.errors import ChatTemplateError
from keras_transformer.version import install_command

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.parser import Parser
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment

# A template may not build larger texts or numbers with one operation.
_LARGEST = 2**24


@functools.cache
def environment() -> ImmutableSandboxedEnvironment:
    """The Jinja environment of chat templates: immutable values, no attributes of Python's own, bounded products.

    Raises:
        ImportError: Jinja is not installed; the message has the install command.
    """
    try:
        import jinja2.exceptions
        import jinja2.ext
        import jinja2.sandbox
    except ImportError as error:
        raise ImportError(f"Chat templates need Jinja: {install_command('chat')}") from error

    class Generation(jinja2.ext.Extension):
        """`{% generation %}...{% endgeneration %}`, which marks what a model wrote: its content, as it is."""

        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context: Context, operator: str, left: object, right: object) -> Any:
            if _size(left) * _size(right) > _LARGEST or (operator == "**" and _size(right) > 64):
                raise jinja2.exceptions.SecurityError(f"a template may not compute as large a result of '{operator}'")
            return super().call_binop(context, operator, left, right)

    # The options of transformers.
    found = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation], autoescape=False
    )
    found.filters["tojson"] = _to_json
    found.globals |= {"raise_exception": _raise, "strftime_now": lambda form: datetime.datetime.now().strftime(form)}
    return found


def _size(value: object) -> float:
    return len(value) if isinstance(value, (str, list, tuple)) else abs(value) if isinstance(value, (int, float)) else 1


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    **options: Any,
) -> str:
    """JSON as transformers writes it: Jinja's own filter escapes the characters of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, **options)


def _raise(message: str) -> NoReturn:
    raise ChatTemplateError(f"The chat template refuses the messages: {message}")
