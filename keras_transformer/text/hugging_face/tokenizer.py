"""Any tokenizer of Hugging Face, run by the `tokenizers` library."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np

from keras_transformer.text.arguments import as_list, as_rows
from keras_transformer.text.batching import pad_batch
from keras_transformer.text.corpus import check_unicode
from keras_transformer.text.errors import InvalidTokenizerError, SpecialTokenError, TextError
from keras_transformer.text.hugging_face.decoding import Decoding
from keras_transformer.text.hugging_face.formats import encode_batch, library
from keras_transformer.text.hugging_face.json import added_tokens, check_ids, parsed, runnable, without_special
from keras_transformer.text.hugging_face.stream import HuggingFaceStream
from keras_transformer.text.tokenizers.special_tokens import well_known_roles
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.tokenizer_files import naming, read_text
from keras_transformer.utils.types import Path

FILE = "tokenizer.json"
SIDES = ("left", "right")
# Texts of which at least one has a token in any vocabulary.
_PROBES = ("a", "0", "the", "\u4e00", ".")


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of Hugging Face: WordPiece, BPE on bytes or with byte fallback, Unigram, with all that stands around them.

    Ids, templates and decoded texts are those of transformers, which adds special tokens by itself. Here they are asked
    for, as with every tokenizer: `tokenizer(texts, **tokenizer.template_options)` gives the ids that transformers gives.

    Args:
        tokenizer_json: str. The content of a `tokenizer.json`.
        special_tokens: dict of role to token, or None for those whose names are well known.
        padding_side: "right" or "left": where `tokenizer(texts)` fills rows.
        truncation_side: "right" or "left": where `max_length` cuts.
        clean_up_spaces: bool. Whether decoding takes the spaces before punctuation away.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: the content is no tokenizer, or names ids that its vocabulary does not have.
        SpecialTokenError: a special token that is not in the vocabulary.

    `graph()` gives the same ids for tokenizers of BERT's kind, with `WordPiece`'s reservation; others run outside of the
    graph, and decoding always does.

    Template: `start=True` puts what the tokenizer's template has before a text, `end=True` what it has behind it: one token
    or several. Where it has nothing there, the token of that role stands in its place. `encode_pair` uses the template for
    pairs.

    Example:

    >>> from keras_transformer.text import BytePair
    >>> content = BytePair.train(["the cat sat on the mat"], 270)._files()["tokenizer.json"].decode()
    >>> tokenizer = HuggingFaceTokenizer(content)
    >>> tokenizer.decode(tokenizer.encode("the cat", end=True), skip_special_tokens=False)
    'the cat</s>'

    Reference: the `tokenizers` library, and `TokenizersBackend` of transformers. Chat templates are left out.
    """

    kind = "hugging_face"

    def __init__(
        self,
        tokenizer_json: str,
        special_tokens: dict[str, Any] | None = None,
        padding_side: str = "right",
        truncation_side: str = "right",
        clean_up_spaces: bool = False,
    ) -> None:
        for name, side in (("padding_side", padding_side), ("truncation_side", truncation_side)):
            if side not in SIDES:
                raise TextError(f'{name} must be "left" or "right". Received: {side!r}')
        self.padding_side = padding_side
        self.truncation_side = truncation_side
        self.clean_up_spaces = bool(clean_up_spaces)
        # Kept as it is: another version of the library might write it otherwise.
        self._json = tokenizer_json
        content = parsed(tokenizer_json)
        # None of the settings that a text is encoded with stays in the file's hands.
        self._tokenizer = runnable({**content, "truncation": None, "padding": None})
        check_ids(content, self._tokenizer)
        # One text after another where there is no template.
        plain = library().processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
        self._processor = self._tokenizer.post_processor or plain
        # It would trim spaces off the offsets.
        self._tokenizer.post_processor = None
        # A special token's name in a text is text; see `encode`.
        self._tokenizer.encode_special_tokens = True
        # Made when they are first used.
        self._twins: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self._decoded = Decoding(content, self._tokenizer, self.clean_up_spaces)
        if special_tokens is None:
            special_tokens = well_known_roles([each["content"] for each in added_tokens(content) if each["special"]])
        super().__init__(special_tokens)
        self._before, self._after = self._template()

    def _template(self):
        """The ids before and after a single text, two tuples."""
        for probe in _PROBES:
            encoding = self._tokenizer.encode(probe, add_special_tokens=False)
            if not encoding.ids:
                continue
            framed = self._processor.process(encoding, None, True)
            inside = [place for place, number in enumerate(framed.sequence_ids) if number == 0]
            if len(inside) == len(encoding.ids) and inside[-1] - inside[0] + 1 == len(inside):
                return tuple(framed.ids[: inside[0]]), tuple(framed.ids[inside[-1] + 1 :])
        raise InvalidTokenizerError("The template of this tokenizer.json does not hold a text once, in one piece.")

    @classmethod
    def from_file(cls, path: Path, special_tokens: dict[str, Any] | None = None) -> HuggingFaceTokenizer:
        """Reads a `tokenizer.json`; see `keras_transformer.text.from_huggingface` for a whole folder.

        Args:
            path: str or path.
            special_tokens: as for the class.

        Raises:
            InvalidTokenizerError: no such file, or it holds no tokenizer.
        """
        with naming(path):
            return cls(read_text(path), special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return self._size

    @property
    def lossless(self) -> bool:
        """False: a `tokenizer.json` does not say."""
        return False

    @property
    def template_options(self) -> dict[str, bool]:
        """dict of "start" and "end", as `encode` takes them: what transformers adds to a single text by itself."""
        return {"start": bool(self._before), "end": bool(self._after)}

    def token_to_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        return self._tokenizer.id_to_token(self._check_id(index)) or ""

    # Text to ids.

    def _encode_batch(self, texts: Any, offsets: Any) -> tuple[list, Any]:
        rows, spans = encode_batch(self._tokenizer, texts, offsets)
        names = self._special_ids - {self.unknown_id}
        for place, row in enumerate(rows):
            # A unigram model takes the name of a special token for one of its pieces.
            if not names.isdisjoint(row):
                found, found_spans = encode_batch(self._twin("nameless"), [texts[place]], offsets)
                rows[place] = found[0]
                if offsets:
                    spans[place] = found_spans[0]
        return rows, spans

    def _encoding(self, text: str):
        """What the library says of a text, in which names of special tokens are text."""
        as_list(text)
        check_unicode(text)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if (self._special_ids - {self.unknown_id}).isdisjoint(encoding.ids):
            return encoding
        return self._twin("nameless").encode(text, add_special_tokens=False)

    def _encode_with_special(self, text: str):
        return self._twin("reading").encode(text, add_special_tokens=False).ids

    def _twin(self, which: str):
        """Another tokenizer for the few texts that need it: a switch of the library's would be one for all threads.

        "reading" takes the names of special tokens for the tokens; "nameless" has no special tokens.
        """
        with self._lock:
            if which not in self._twins:
                content = json.loads(self._tokenizer.to_str())
                if which == "nameless":
                    content = without_special(content, self._special_ids - {self.unknown_id})
                self._twins[which] = runnable(content)
                self._twins[which].encode_special_tokens = which == "nameless"
            return self._twins[which]

    def _frame(self, start: bool, end: bool, max_length: int | None, filler: Any = None):
        before = list(self._before or ([self.opening_id()] if start else [])) if start else []
        after = list(self._after or ([self.closing_id()] if end else [])) if end else []
        if filler is not None:
            before, after = [filler] * len(before), [filler] * len(after)
        limit = self._limit(max_length, len(before) + len(after))
        return lambda row: [*before, *self._cut(row, limit), *after]

    def _limit(self, max_length: int | None, taken: int) -> int | None:
        if max_length is None:
            return None
        if not isinstance(max_length, (int, np.integer)) or max_length < 1 or max_length < taken:
            raise TextError(
                f"max_length must be an int that holds the special tokens at least. Received: {max_length!r}"
            )
        return max_length - taken

    def _cut(self, row: Any, limit: int | None):
        if limit is None or len(row) <= limit:
            return row
        return row[:limit] if self.truncation_side == "right" else row[len(row) - limit :]

    def encode_pair(self, first: Any, second: Any, max_length: int | None = None) -> tuple[list, list]:
        """Turns a pair of texts into one sequence, by the tokenizer's own template for pairs.

        Args:
            first, second: str, or lists of str of the same length.
            max_length: int or None. The longer text is cut down to the shorter, then both.

        Returns:
            Pair of ids and segment ids, lists of the same length; two lists of lists for lists. Segment ids are the
            template's: all 0 in RoBERTa's manner.

        Raises:
            TextError: the texts differ in number; `max_length` leaves no room for the special tokens.
        """
        single = isinstance(first, str)
        if single != isinstance(second, str) or (not single and len(first) != len(second)):
            raise TextError("first and second must both be str, or lists of str of the same length.")
        pairs = [(first, second)] if single else list(zip(first, second, strict=True))
        rows, segments = [], []
        for one, two in pairs:
            encoding = self._pair_encoding(one, two, max_length)
            rows.append(encoding.ids)
            segments.append(encoding.type_ids)
        return (rows[0], segments[0]) if single else (rows, segments)

    def _pair_encoding(self, first: Any, second: Any, max_length: int | None):
        one, two = self._encoding(first), self._encoding(second)
        limit = self._limit(max_length, self._processor.num_special_tokens_to_add(True))
        if limit is not None:
            for encoding, length in zip((one, two), _shares(len(one), len(two), limit), strict=True):
                encoding.truncate(length, direction=self.truncation_side)
        return self._processor.process(one, two, True)

    def __call__(
        self,
        texts: Any,
        *,
        padding: str | int = "longest",
        max_length: int | None = None,
        start: bool = False,
        end: bool = False,
        return_offsets: bool = False,
    ) -> dict[str, np.ndarray]:
        if self.padding_side == "right":
            return super().__call__(
                texts, padding=padding, max_length=max_length, start=start, end=end, return_offsets=return_offsets
            )
        if self.pad_id is None:
            raise SpecialTokenError(f"This {type(self).__name__} has no pad token, so it cannot make a batch.")
        texts = [texts] if isinstance(texts, str) else texts
        options: dict[str, Any] = {"start": start, "end": end, "max_length": max_length}
        rows, offsets = self.encode(texts, **options), None
        if return_offsets:
            rows, offsets = self.encode_with_offsets(texts, **options)
            offsets = [row[::-1] for row in offsets]
        batch = pad_batch([row[::-1] for row in rows], self.pad_id, padding, offsets)
        return {name: array[:, ::-1].copy() for name, array in batch.items()}

    # Ids to text.

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> Any:
        rows = as_rows(ids)
        if rows and not isinstance(rows[0], int) and hasattr(rows[0], "__iter__"):
            return [self.decode(row, skip_special_tokens) for row in rows]
        return self._decoded([self._check_id(index) for index in rows], skip_special_tokens)

    def _token_bytes(self, index: int) -> bytes:
        return self._decoded([index], False).encode("utf-8")

    def stream(self, skip_special_tokens: bool = True) -> Any:
        return HuggingFaceStream(self, skip_special_tokens)

    def _graph(self) -> Any:
        from keras_transformer.text.hugging_face.graph import as_wordpiece

        words = as_wordpiece(parsed(self._json), self)
        if words is None:
            return super()._graph()
        from keras_transformer.text.tokenizers.graphs import EncodingGraph

        return EncodingGraph(words)

    # Files.

    def _options(self) -> dict[str, Any]:
        return {
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            "clean_up_spaces": self.clean_up_spaces,
        }

    def _files(self) -> dict[str, bytes]:
        return {FILE: self._json.encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: dict[str, Any] | None, options: dict[str, Any]
    ) -> HuggingFaceTokenizer:
        return cls(files[FILE].decode("utf-8"), special_tokens, **options)


def _shares(first: Any, second: Any, room: int):
    """The lengths of two texts that are to share `room` tokens, as the `tokenizers` library divides them.

    Example:

    >>> _shares(9, 2, 6), _shares(9, 8, 5), _shares(8, 9, 5)
    ((4, 2), (3, 2), (2, 3))
    """
    if first + second <= room:
        return first, second
    short, long = min(first, second), max(first, second)
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short = room // 2
        long = room - short
    return (long, short) if first > second else (short, long)
