"""A conversation with a language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.generation.chat.conversation_steps import ConversationSteps
from keras_transformer.generation.chat.messages import Tools, read_messages
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.generation.generator import Generator


class Conversation:
    """A conversation that keeps its cache: each turn reads only what is new.

    `LanguageModel.conversation()` and the `conversation()` of a bundle return one. It is not for several threads at once.

    Args:
        generator: `Generator` of a decoder-only model with a tokenizer that has a chat template.
        messages: list of dicts: those to begin with, such as one of the role "system". Default none.
        tools: list of dicts: the JSON schemas of the functions that the model may call. Default None.
        template: dict of what else the template reads. Default None.

    Attributes:
        messages: list of dicts with "role" and "content", the answers too.

    Raises:
        ChatMessageError: a message has no role or content.
        ChatTemplateError: the tokenizer has no chat template, or an invalid one.

    Example:

    >>> from keras_transformer import models, tasks
    >>> from keras_transformer.text import BytePair, HuggingFaceTokenizer
    >>> content = BytePair.train(["the cat sat on the mat"], 270)._files()["tokenizer.json"].decode()
    >>> template = "{% for each in messages %}{{ each.content }}{{ eos_token }}{% endfor %}"
    >>> tokenizer = HuggingFaceTokenizer(content, chat_template=template)
    >>> backbone = models.Decoder(models.Size(1, 8, 2, 16), tokenizer.vocabulary_size)
    >>> conversation = tasks.LanguageModel(backbone, tokenizer=tokenizer).conversation()
    >>> answer = conversation.send("the cat", max_new_tokens=3)
    >>> [message["role"] for message in conversation.messages], conversation.messages[1]["content"] == answer
    (['user', 'assistant'], True)
    """

    def __init__(
        self,
        generator: Generator,
        messages: Sequence[Mapping[str, object]] = (),
        *,
        tools: Tools | None = None,
        template: JsonObject | None = None,
    ) -> None:
        self.messages = read_messages(messages) if messages else []
        generator.chat_template()  # A missing one is an error now, not with the first message.
        self._steps = ConversationSteps(generator.steps)
        self._generator = generator.with_steps(self._steps)
        self._variables: JsonObject = {"tools": tools, "template": template}

    @property
    def num_read(self) -> int:
        """int: how many tokens the model has read and written in all turns."""
        return self._steps.num_read

    def send(self, content: str | JsonObject, **options: object) -> str:
        """Adds a message and returns the answer, which is added too.

        Args:
            content: str, what the user says, or a dict with "role" and "content", such as the result of a tool.
            **options: those of `Generator.stream`, such as `max_new_tokens` and `sampler`.

        Returns:
            str, without the end token.

        Raises:
            GenerationError: as of `Generator.chat`; the messages are those before.
        """
        return "".join(self.stream(content, **options))

    def stream(self, content: str | JsonObject, **options: Any) -> Iterator[str]:
        """Adds a message and returns the answer piece by piece; as `send`.

        The message and what has been yielded of the answer are added when the stream ends or is closed.
        """
        messages = [*self.messages, *read_messages([content] if isinstance(content, dict) else content)]
        pieces = self._generator.stream_chat(messages, **self._variables, **options)
        return self._recorded(messages, pieces)

    def _recorded(self, messages: list[JsonObject], pieces: Iterator[str]) -> Iterator[str]:
        answer = []
        try:
            for piece in pieces:
                answer.append(piece)
                yield piece
        except GeneratorExit:
            self._add(messages, answer)
            raise
        self._add(messages, answer)

    def _add(self, messages: list[JsonObject], answer: list[str]) -> None:
        self.messages = [*messages, {"role": "assistant", "content": "".join(answer)}]
