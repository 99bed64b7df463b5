"""The template of a `tokenizer.json`: the special tokens around a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.text.errors import InvalidTokenizerError

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.processors import PostProcessor

# Every vocabulary has a token for at least one of these texts.
_PROBES = ("a", "0", "the", "\u4e00", ".")


class Template(NamedTuple):
    """The template of a single text.

    Attributes:
        before, after: tuples of the ids that it adds before and after the text.
        before_segments, after_segments: tuples of the segment ids of these.
        text_segment: int. The segment id of the text.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    before_segments: tuple[int, ...]
    after_segments: tuple[int, ...]
    text_segment: int


def read_template(tokenizer: tokenizers.Tokenizer, processor: PostProcessor) -> Template:
    """Returns the `Template` of a single text.

    Args:
        tokenizer: `tokenizers.Tokenizer` without a post-processor.
        processor: its post-processor.

    Raises:
        InvalidTokenizerError: the template does not contain the text exactly once.
    """
    for probe in _PROBES:
        encoding = tokenizer.encode(probe, add_special_tokens=False)
        if not encoding.ids:
            continue
        processed = processor.process(encoding, None, True)
        inside = [index for index, number in enumerate(processed.sequence_ids) if number == 0]
        if len(inside) == len(encoding.ids) and inside[-1] - inside[0] + 1 == len(inside):
            ids, segments, first, last = processed.ids, processed.type_ids, inside[0], inside[-1] + 1
            return Template(
                tuple(ids[:first]), tuple(ids[last:]), tuple(segments[:first]), tuple(segments[last:]), segments[first]
            )
    raise InvalidTokenizerError("The template of this tokenizer.json does not contain the text exactly once.")
