"""Tokenizer of a `tokenizer.json`, by the `tokenizers` library."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.text.arguments import as_list, as_rows, pair_lengths, text_length, truncated
from keras_transformer.text.batching import pad_batch
from keras_transformer.text.corpus import check_unicode
from keras_transformer.text.errors import TextError
from keras_transformer.text.hugging_face.decoding import Decoder
from keras_transformer.text.hugging_face.formats import encode_batch, library, library_calls
from keras_transformer.text.hugging_face.json import (
    added_tokens,
    check_ids,
    library_errors,
    load_content,
    parsed,
    read_template,
    without_special,
)
from keras_transformer.text.hugging_face.stream import HuggingFaceStream
from keras_transformer.text.hugging_face.token_bytes import token_bytes
from keras_transformer.text.tokenizers.special_tokens import well_known_roles
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.tokenizer_files import errors_with_path, read_text
from keras_transformer.utils.types import Path, SpecialTokens

if TYPE_CHECKING:
    import tokenizers

    from keras_transformer.text.tokenizers.graphs import EncodingGraph

FILE, CHAT_FILE = "tokenizer.json", "chat_template.jinja"
SIDES = ("left", "right")


class HuggingFaceTokenizer(Tokenizer):
    """Tokenizer of a `tokenizer.json`: WordPiece, BPE (byte-level or with byte fallback) or Unigram, with its pipeline.

    Ids, templates and decoded texts are the same as in transformers. Unlike transformers, special tokens are added only on
    request, as in all tokenizers: `tokenizer(texts, **tokenizer.template_options)` returns the ids of transformers.

    Args:
        tokenizer_json: str. The content of a `tokenizer.json`.
        special_tokens: dict of role to token, or None to detect special tokens with well-known names.
        padding_side: "right" or "left". The side on which `tokenizer(texts)` pads.
        truncation_side: "right" or "left". The side on which `max_length` truncates.
        clean_up_spaces: bool. Whether decoding removes the spaces before punctuation.
        chat_template: str or None. The chat template, in Jinja; see `generation.ChatTemplate`. Default None.
        max_length: int >= 1, or None for no limit. The length to which `template_options` truncates, such as the
            "max_seq_length" of sentence-transformers; other calls do not truncate. Default None.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: the content is not a tokenizer, or contains ids that are not in its vocabulary.
        SpecialTokenError: a special token is not in the vocabulary.

    `graph()` returns the same ids for BERT tokenizers, with the exceptions documented at `WordPiece`. Other tokenizers, and
    decoding, cannot run in a graph.

    Template: `start=True` adds the tokens that the template of the tokenizer has before a text, `end=True` those after it,
    one or several. If the template has none, the token of the role is added. `encode_pair` uses the template for pairs.

    Example:

    >>> from keras_transformer.text import BytePair
    >>> content = BytePair.train(["the cat sat on the mat"], 270)._files()["tokenizer.json"].decode()
    >>> tokenizer = HuggingFaceTokenizer(content)
    >>> tokenizer.decode(tokenizer.encode("the cat", end=True), skip_special_tokens=False)
    'the cat</s>'

    Reference: the `tokenizers` library, and `TokenizersBackend` of transformers.
    """

    kind = "hugging_face"

    def __init__(
        self,
        tokenizer_json: str,
        special_tokens: SpecialTokens | None = None,
        padding_side: str = "right",
        truncation_side: str = "right",
        clean_up_spaces: bool = False,
        chat_template: str | None = None,
        max_length: int | None = None,
    ) -> None:
        _check_sides(padding_side=padding_side, truncation_side=truncation_side)
        self.padding_side = padding_side
        self.truncation_side = truncation_side
        self.clean_up_spaces = bool(clean_up_spaces)
        self.chat_template = chat_template
        self.max_length = max_length
        # The original text: another version of the library may serialize it differently.
        self._json = tokenizer_json
        content = parsed(tokenizer_json)
        # Truncation and padding are done by this class.
        self._tokenizer = load_content({**content, "truncation": None, "padding": None})
        check_ids(content, self._tokenizer)
        # Without a template: the concatenation of the texts.
        plain = library().processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
        self._processor = self._tokenizer.post_processor or plain
        # A post-processor would trim spaces from the offsets.
        self._tokenizer.post_processor = None
        # The name of a special token in a text is ordinary text; see `encode`.
        self._tokenizer.encode_special_tokens = True
        # Created on first use.
        self._variants: dict[str, tokenizers.Tokenizer] = {}
        self._lock = threading.Lock()
        self._size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self._decoder = Decoder(content, self._tokenizer, self.clean_up_spaces)
        if special_tokens is None:
            special_tokens = well_known_roles([each["content"] for each in added_tokens(content) if each["special"]])
        super().__init__(special_tokens)
        with library_errors(FILE):
            self._template = read_template(self._tokenizer, self._processor)

    @classmethod
    def from_file(cls, path: Path, special_tokens: SpecialTokens | None = None) -> HuggingFaceTokenizer:
        """Loads a `tokenizer.json`. For a whole folder, see `keras_transformer.text.from_huggingface`.

        Args:
            path: str or path.
            special_tokens: as for the class.

        Raises:
            InvalidTokenizerError: the file does not exist or is not a tokenizer.
        """
        with errors_with_path(path):
            return cls(read_text(path), special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return self._size

    @property
    def content(self) -> dict[str, Any]:
        """The content of the `tokenizer.json`."""
        return parsed(self._json)

    @property
    def lossless(self) -> bool:
        """False: a `tokenizer.json` does not say."""
        return False

    @property
    def template_options(self) -> dict[str, Any]:
        """Arguments of `encode` with which texts are encoded as in training: "start" and "end", which add the special
        tokens that transformers adds by default, and "max_length", if the tokenizer has one."""
        options: dict[str, Any] = {"start": bool(self._template.before), "end": bool(self._template.after)}
        return options if self.max_length is None else {**options, "max_length": self.max_length}

    def token_to_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        return self._tokenizer.id_to_token(self._check_id(index)) or ""

    # Text to ids.

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        rows, spans = encode_batch(self._tokenizer, texts, offsets)
        special = self._special_ids - {self.unknown_id}
        for index, row in enumerate(rows):
            # A unigram model encodes the name of a special token as that piece.
            if not special.isdisjoint(row):
                found, found_spans = encode_batch(self._variant("without_special"), [texts[index]], offsets)
                rows[index] = found[0]
                if offsets:
                    spans[index] = found_spans[0]
        return rows, spans

    def _encoding(self, text: str) -> tokenizers.Encoding:
        """Returns the `tokenizers.Encoding` of a text, with names of special tokens as ordinary text."""
        as_list(text)
        check_unicode(text)
        with library_calls():
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
            if (self._special_ids - {self.unknown_id}).isdisjoint(encoding.ids):
                return encoding
            return self._variant("without_special").encode(text, add_special_tokens=False)

    def _encode_with_special(self, text: str) -> list[int]:
        with library_calls():
            return self._variant("with_special").encode(text, add_special_tokens=False).ids

    def _variant(self, name: str) -> tokenizers.Tokenizer:
        """Returns a variant of the tokenizer, because changing `encode_special_tokens` would affect all threads.

        "with_special" encodes names of special tokens as these tokens; "without_special" has no special tokens.
        """
        with self._lock:
            if name not in self._variants:
                content = json.loads(self._tokenizer.to_str())
                if name == "without_special":
                    content = without_special(content, self._special_ids - {self.unknown_id})
                self._variants[name] = load_content(content)
                self._variants[name].encode_special_tokens = name == "without_special"
            return self._variants[name]

    def _post_processor(
        self, start: bool, end: bool, max_length: int | None, filler: Any = None
    ) -> Callable[[list], list]:
        before = list(self._template.before or (self.opening_id(),)) if start else []
        after = list(self._template.after or (self.closing_id(),)) if end else []
        if filler is not None:
            before, after = [filler] * len(before), [filler] * len(after)
        length = text_length(max_length, len(before) + len(after))
        return lambda row: [*before, *truncated(row, length, self.truncation_side), *after]

    def encode_pair(self, first: Any, second: Any, max_length: int | None = None) -> tuple[list, list]:
        """Encodes a pair of texts as one sequence, with the template of the tokenizer for pairs.

        Args:
            first, second: str, or lists of str of the same length.
            max_length: int or None. The longer text is truncated to the length of the shorter, then both are.

        Returns:
            Tuple of ids and segment ids, lists of the same length. For lists of texts, two lists of lists. The template
            defines the segment ids, for example all 0 for RoBERTa.

        Raises:
            TextError: different numbers of texts; `max_length` is too small for the special tokens.
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

    def _pair_encoding(self, first: str, second: str, max_length: int | None) -> tokenizers.Encoding:
        one, two = self._encoding(first), self._encoding(second)
        with library_calls():
            total = text_length(max_length, self._processor.num_special_tokens_to_add(True))
            if total is not None:
                for encoding, length in zip((one, two), pair_lengths(len(one), len(two), total), strict=True):
                    encoding.truncate(length, direction=self.truncation_side)
            return self._processor.process(one, two, True)

    def _pad(self, rows: list, padding: str | int, offsets: list | None) -> dict[str, np.ndarray]:
        if self.padding_side == "right":
            return super()._pad(rows, padding, offsets)
        offsets = offsets and [row[::-1] for row in offsets]
        batch = pad_batch([row[::-1] for row in rows], self.pad_id, padding, offsets)
        return {name: array[:, ::-1].copy() for name, array in batch.items()}

    def _segment_ids(self, padding_mask: np.ndarray, start: bool, end: bool) -> np.ndarray:
        segment_ids = super()._segment_ids(padding_mask, start, end)
        before, after = (self._template.before_segments if start else (), self._template.after_segments if end else ())
        for row, mask in zip(segment_ids, padding_mask, strict=True):
            text = (self._template.text_segment,) * (int(mask.sum()) - len(before) - len(after))
            row[mask] = (*before, *text, *after)
        return segment_ids

    # Ids to text.

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> Any:
        rows = as_rows(ids)
        if rows and not isinstance(rows[0], int) and hasattr(rows[0], "__iter__"):
            return [self.decode(row, skip_special_tokens) for row in rows]
        return self._decoder([self._check_id(index) for index in rows], skip_special_tokens)

    def _token_bytes(self, index: int) -> bytes:
        return self._decoder([index], False).encode("utf-8")

    def token_bytes(self) -> list[bytes]:
        return token_bytes(parsed(self._json), self._tokenizer, self._size)

    def stream(self, skip_special_tokens: bool = True) -> HuggingFaceStream:
        return HuggingFaceStream(self, skip_special_tokens)

    def _graph(self) -> EncodingGraph:
        from keras_transformer.text.hugging_face.graph import as_wordpiece

        wordpiece = as_wordpiece(parsed(self._json), self)
        if wordpiece is None:
            return super()._graph()
        from keras_transformer.text.tokenizers.graphs import EncodingGraph

        return EncodingGraph(wordpiece)

    # Files.

    def _options(self) -> dict[str, Any]:
        options = {
            "padding_side": self.padding_side,
            "truncation_side": self.truncation_side,
            "clean_up_spaces": self.clean_up_spaces,
        }
        # Left out by default, so that tokenizers saved before it existed keep their fingerprints.
        return options if self.max_length is None else {**options, "max_length": self.max_length}

    def _files(self) -> dict[str, bytes]:
        files = {FILE: self._json.encode("utf-8")}
        return files if self.chat_template is None else {**files, CHAT_FILE: self.chat_template.encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, Any]
    ) -> HuggingFaceTokenizer:
        template = files[CHAT_FILE].decode("utf-8") if CHAT_FILE in files else None
        return cls(files[FILE].decode("utf-8"), special_tokens, chat_template=template, **options)


def _check_sides(**sides: str) -> None:
    for name, side in sides.items():
        if side not in SIDES:
            raise TextError(f'{name} must be "left" or "right". Received: {side!r}')
