"""Messages of a chat, as OpenAI and Hugging Face write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from keras_transformer.generation.errors import ChatMessageError
from keras_transformer.utils.types import JsonObject

# One message of the user, or messages as dicts of "role" and "content".
MessagesLike: TypeAlias = "str | Sequence[Mapping[str, object]]"
# The functions that a model may call, as JSON schemas or as Python functions.
Tools: TypeAlias = "Sequence[Mapping[str, object] | Callable[..., object]]"


def read_messages(messages: MessagesLike) -> list[JsonObject]:
    """Validates messages.

    Args:
        messages: str, which is one message of the user, or a sequence of dicts with "role" and, unless it has
            "tool_calls", "content".

    Returns:
        List of dicts, which are copies.

    Raises:
        ChatMessageError: names the message and what is wrong with it.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence) or isinstance(messages, bytes) or not messages:
        raise ChatMessageError(
            f"Messages must be text, or a list of dicts that is not empty. Received: {messages!r:.80}"
        )
    return [_read(number, message) for number, message in enumerate(messages)]


def _read(number: int, message: object) -> JsonObject:
    if not isinstance(message, Mapping):
        raise ChatMessageError(f"Message {number} must be a dict of 'role' and 'content'. Received: {message!r:.80}")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise ChatMessageError(f"Message {number} needs a 'role', such as 'user'. Received: {role!r:.80}")
    is_call = content is None and bool(message.get("tool_calls"))
    if not is_call and not isinstance(content, (str, list)):
        raise ChatMessageError(f"Message {number} needs a 'content' of text. Received: {content!r:.80}")
    return dict(message)
