"""Dialogues as token ids, with masks of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_transformer.data.errors import SequenceDataError

if TYPE_CHECKING:
    from keras_transformer.generation.chat.messages import MessagesLike
    from keras_transformer.generation.chat.template import ChatTemplate, Tools
    from keras_transformer.text import Tokenizer

_ANSWERS = ("all", "last")


class Chats(NamedTuple):
    """Encoded dialogues.

    Attributes:
        token_ids: list of lists of int: the tokens of each dialogue.
        label_masks: list of lists of bool: which of these tokens the model is to answer.
        dropped: int. The number of dialogues that were too long.

    Example:

    >>> Chats([[5, 6, 7]], [[False, True, True]], dropped=0).dropped
    0
    """

    token_ids: list[list[int]]
    label_masks: list[list[bool]]
    dropped: int


def encode_chats(
    conversations: Iterable[MessagesLike],
    tokenizer: Tokenizer,
    *,
    max_length: int | None = None,
    answers: str = "all",
    end_id: int | Sequence[int] | None = None,
    tools: Tools | None = None,
) -> Chats:
    """Encodes dialogues with the chat template of a tokenizer, for training on the answers of the assistant.

    The tokens before an answer are those that `model.chat` reads before it writes that answer. An answer ends with its end
    token; what the template writes after it, such as a line feed, is no label. `pack(chats.token_ids, ...,
    label_masks=chats.label_masks)` makes batches of them.

    Args:
        conversations: iterable of lists of messages, dicts of "role" and "content"; or of dicts with such a list as
            "messages", as the lines of a JSON Lines file have it.
        tokenizer: a tokenizer of `keras_transformer.text` with a `chat_template`.
        max_length: int >= 2, or None. Longer dialogues are dropped and counted. For `pack`: `sequence_length + 1`.
        answers: "all", or "last" to learn the last answer of each dialogue only. Default "all".
        end_id: int, or a list of ints: the tokens that end an answer. None: that of the tokenizer.
        tools: list of dicts: JSON schemas of the functions that the template describes. Default None.

    Returns:
        `Chats`.

    Raises:
        SequenceDataError: a dialogue has no message of the assistant, or begins with one; or its template writes an
            answer differently when messages follow. The message names the dialogue by its number.
        ChatMessageError: a message has no role or content.
        ChatTemplateError: there is no chat template, or it fails.
        ValueError: `answers` is neither "all" nor "last".

    Example:

    >>> from keras_transformer.text import BytePair, HuggingFaceTokenizer
    >>> template = ("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    ...     "{% if add_generation_prompt %}assistant: {% endif %}")
    >>> content = BytePair.train(["the cat sat"], 270)._files()["tokenizer.json"].decode()
    >>> tokenizer = HuggingFaceTokenizer(content, chat_template=template)
    >>> messages = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat"}]
    >>> ids, mask = (each[0] for each in encode_chats([messages], tokenizer)[:2])
    >>> tokenizer.decode([i for i, is_label in zip(ids, mask) if is_label], skip_special_tokens=False)
    'sat</s>'
    """
    from keras_transformer.generation.chat.template import ChatTemplate
    from keras_transformer.generation.errors import ChatTemplateError
    from keras_transformer.generation.stop import as_end_ids

    if answers not in _ANSWERS:
        raise ValueError(f"answers must be 'all' or 'last'. Received: {answers!r}")
    source = getattr(tokenizer, "chat_template", None)
    if source is None:
        raise ChatTemplateError("The tokenizer has no chat template: the model was not trained for chats.")
    ends = as_end_ids(tokenizer.end_id if end_id is None else end_id)
    encoder = _Encoder(ChatTemplate(source, tokenizer.special_tokens), tokenizer, ends, tools)
    chats = Chats([], [], 0)
    dropped = 0
    for number, conversation in enumerate(conversations):
        messages = conversation.get("messages") if isinstance(conversation, dict) else conversation
        ids, mask = encoder.encode(number, messages, answers)
        if max_length is not None and len(ids) > max_length:
            dropped += 1
            continue
        chats.token_ids.append(ids)
        chats.label_masks.append(mask)
    return chats._replace(dropped=dropped)


class _Encoder:
    """Encodes dialogues with one template."""

    def __init__(
        self, template: ChatTemplate, tokenizer: Tokenizer, ends: tuple[int, ...], tools: Tools | None
    ) -> None:
        self._template, self._tokenizer, self._ends, self._tools = template, tokenizer, ends, tools

    def encode(self, number: int, messages: Any, answers: str) -> tuple[list[int], list[bool]]:
        """Returns the tokens of a dialogue, and which of them are labels."""
        whole = self._render(messages, False)  # Checks the messages.
        places = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if not places or places[0] == 0:
            raise SequenceDataError(f"Dialogue {number} needs a message of the user, then one of the assistant.")
        ids: list[int] = []
        mask: list[bool] = []
        text = ""
        for place in places if answers == "all" else places[-1:]:
            is_last = place + 1 == len(messages)
            for end, adds_prompt, is_answer in ((place, True, False), (place + 1, False, True)):
                longer = whole if is_answer and is_last else self._render(messages[:end], adds_prompt)
                if not longer.startswith(text) or not (whole.startswith(longer)):
                    hint = "" if answers == "last" else " Pass answers='last' to learn the last answer only."
                    raise SequenceDataError(
                        f"The chat template writes the answer in message {place} of dialogue {number} differently when "
                        f"other messages follow or precede it.{hint}"
                    )
                new = self._following(ids, text, longer)
                mask += self._labels(new) if is_answer else [False] * len(new)
                ids, text = ids + new, longer
        return ids, mask

    def _render(self, messages: Sequence[Mapping[str, object]], adds_prompt: bool) -> str:
        return self._template.render(messages, tools=self._tools, add_generation_prompt=adds_prompt)

    def _following(self, ids: list[int], text: str, longer: str) -> list[int]:
        """Returns the tokens after those of a text; where these would change, the rest is encoded alone."""
        encoded = self._tokenizer.encode(longer, allow_special_tokens=True)
        if encoded[: len(ids)] == ids:
            return encoded[len(ids) :]
        return self._tokenizer.encode(longer[len(text) :], allow_special_tokens=True)

    def _labels(self, answer: list[int]) -> list[bool]:
        """Returns which tokens of an answer are labels: all up to its end token."""
        last = next((place for place, token in enumerate(answer) if token in self._ends), len(answer) - 1)
        return [place <= last for place in range(len(answer))]
