"""Chat templates in Jinja, as Hugging Face writes them."""

from __future__ import annotations

import re
from typing import Any

from keras_transformer.generation.chat.environment import environment
from keras_transformer.generation.chat.messages import MessagesLike, Tools, read_messages
from keras_transformer.generation.errors import ChatTemplateError
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import SpecialTokens

# The names of special tokens in templates, by their role.
_NAMES = {
    "start": "bos_token",
    "end": "eos_token",
    "unknown": "unk_token",
    "separator": "sep_token",
    "pad": "pad_token",
    "classification": "cls_token",
    "mask": "mask_token",
}
_ASKS_FOR_NONE = re.compile(r"\bis\s+(not\s+)?none\b", re.IGNORECASE)


class ChatTemplate:
    """Writes the messages of a chat as the one text that a model was trained on.

    The template runs in a sandbox: it cannot reach attributes of Python, change its arguments or build large values.

    Args:
        source: str. The template, in Jinja.
        special_tokens: dict of role to token, as `Tokenizer.special_tokens`; the template knows them as `bos_token`,
            `eos_token` and so on. Default None, for none.

    Raises:
        ChatTemplateError: the template is not valid Jinja.
        ImportError: Jinja is not installed.

    Example:

    >>> template = ChatTemplate("{% for each in messages %}<{{ each.role }}>{{ each.content }}{{ eos_token }}{% endfor %}"
    ...     "{% if add_generation_prompt %}<assistant>{% endif %}", {"end": "</s>"})
    >>> template.render("Hello")
    '<user>Hello</s><assistant>'

    Reference: `apply_chat_template` of transformers. Deviations: `strftime_now` is the only access to the time, products of
    more than 2^24 elements are refused, `{% generation %}` marks nothing, and the absent content of a message that calls
    functions is `""` for a template that never asks whether something is none: it would write "None".
    """

    def __init__(self, source: str, special_tokens: SpecialTokens | None = None) -> None:
        import jinja2

        self.source = source
        self._tokens = {name: (special_tokens or {}).get(role, "") for role, name in _NAMES.items()}
        try:
            self._template = environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ChatTemplateError(f"The chat template is not valid: {error}") from None

    @classmethod
    def of(cls, tokenizer: Any) -> ChatTemplate:
        """Returns the chat template of a tokenizer.

        Raises:
            ChatTemplateError: there is none, or an invalid one.
        """
        source = getattr(tokenizer, "chat_template", None)
        if source is None:
            raise ChatTemplateError("The tokenizer has no chat template: the model was not trained for chats.")
        return cls(source, tokenizer.special_tokens)

    def render(
        self,
        messages: MessagesLike,
        *,
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """Writes messages as text.

        Args:
            messages: str for one message of the user, or a list of dicts with "role" and "content".
            tools: list of dicts: the JSON schemas of the functions that the model may call. Default None.
            add_generation_prompt: bool. Whether the text ends where an answer begins. Default True.
            **variables: what else the template reads, such as `enable_thinking`.

        Returns:
            str, with the names of special tokens.

        Raises:
            ChatMessageError: a message has no role or content.
            ChatTemplateError: the template refuses the messages, or fails.
        """
        given = {**self._tokens, "tools": tools or None, "documents": None, **variables}
        read = read_messages(messages)
        if not _ASKS_FOR_NONE.search(self.source):
            read = [{**each, "content": ""} if each.get("content") is None else each for each in read]
        given |= {"messages": read, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(given)
        except ChatTemplateError:
            raise
        except library_exceptions() as error:  # A template is a program.
            raise ChatTemplateError(f"The chat template fails: {type(error).__name__}: {error}") from error
