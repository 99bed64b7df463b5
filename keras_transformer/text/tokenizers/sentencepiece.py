"""SentencePiece: subwords of raw text, spaces included."""

from __future__ import annotations

import io
from typing import Any

from keras_transformer.text.corpus import check_size, lines_of, stream_texts
from keras_transformer.text.errors import InvalidTokenizerError, TextError
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE, read_model_type, with_exact_scores
from keras_transformer.text.tokenizers.special_tokens import PLAIN, special_token_roles, tokens_in
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.tokenizer_files import read_file
from keras_transformer.utils.types import Path

FILE = "sentencepiece.model"
MODEL_TYPES = ("unigram", "bpe")
# More lines than this are sampled, so that memory stays bounded.
MAX_LINES = 5_000_000


def _library():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError("SentencePiece needs the sentencepiece library: pip install sentencepiece") from error
    return sentencepiece


class SentencePiece(Tokenizer):
    """Subwords of raw text by the `sentencepiece` library, a unigram language model or byte-pair encoding.

    `graph()` gives the same ids for models trained here. With a unigram model from elsewhere the two libraries may settle
    ties between equally likely splits (of runs such as "......") in other ways: models trained here have scores that
    settle them, see `sentencepiece_model.with_exact_scores`.

    Args:
        model: bytes of a SentencePiece model.
        special_tokens: dict of role to token, or None for those that the model itself names.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: the bytes are no SentencePiece model.
        SpecialTokenError: a special token that is not in the vocabulary.

    Example:

    >>> tokenizer = SentencePiece.train(["the cat sat on the mat"] * 9, 300, lossless=True)
    >>> tokenizer.decode(tokenizer.encode(" the  cat\\n ")) == " the  cat\\n "
    True

    Reference:
        Kudo and Richardson 2018; the unigram model: Kudo 2018, section 3.2.
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes, special_tokens: dict[str, Any] | None = None) -> None:
        library = _library()
        try:
            self._processor = library.SentencePieceProcessor(model_proto=bytes(model))
        except (RuntimeError, TypeError) as error:
            raise InvalidTokenizerError(f"Not a SentencePiece model: {error}") from None
        self._model = bytes(model)
        self.model_type = read_model_type(self._model)
        self._size = self._processor.vocab_size()
        super().__init__(_own_roles(self._processor) if special_tokens is None else special_tokens)
        self._read_spelling()

    def _read_spelling(self) -> None:
        """How each piece spells text, and how the model treats spaces."""
        probe = self._processor
        self._byte_ids = [probe.piece_to_id(f"<0x{value:02X}>") for value in range(256)]
        self.byte_fallback = all(probe.is_byte(index) for index in self._byte_ids)
        # Read from what the model does: "a" comes back as a piece with a space when the model adds one.
        self._drops_first_space = probe.normalize("a").startswith(SPACE)
        self._lossless = self.byte_fallback and probe.normalize("  \u00c5\ufb01\u3000\n ") == _spaced(
            "  \u00c5\ufb01\u3000\n "
        )
        self._bytes = [self._spelling(index) for index in range(self._size)]

    def _spelling(self, index: int):
        piece = self._processor.id_to_piece(index)
        if self._processor.is_byte(index):
            return bytes([int(piece[3:5], 16)])
        return piece.encode("utf-8") if index in self._special_ids else piece.replace(SPACE, " ").encode("utf-8")

    @classmethod
    def train(
        cls,
        files_or_texts: Any,
        vocabulary_size: int,
        *,
        model_type="unigram",
        special_tokens: dict[str, Any] | None = None,
        lossless=False,
        byte_fallback: bool = True,
        normalization="nmt_nfkc",
        character_coverage=0.9995,
        num_threads=2,
    ) -> SentencePiece:
        """Learns the pieces from text.

        Args:
            files_or_texts: path, list of paths, or iterable of str. Read line by line; of more than five million lines as
                many are drawn, so that memory stays bounded.
            vocabulary_size: int. At most so many pieces; fewer when the text holds no more.
            model_type: "unigram" or "bpe".
            special_tokens: dict of role to token. Defaults to <pad>, <unk>, <s>, </s>, <mask>.
            lossless: bool. Keeps every character and space, so that decoding gives the very text back. No normalization,
                and bytes for what has no piece.
            byte_fallback: bool. Spells what has no piece in UTF-8 bytes instead of the unknown token; takes 256 pieces.
            normalization: "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf" (lower case) or "identity".
            character_coverage: float in (0, 1]. Share of the characters that get a piece of their own.
            num_threads: int >= 1. The pieces do not depend on it.

        Returns:
            A `SentencePiece`.

        Raises:
            TextError: an argument out of its range; a vocabulary too small for the characters of the text.
            EmptyTextError, EncodingError, MissingTextError: the text is unfit.
        """
        if model_type not in MODEL_TYPES:
            raise TextError(f"Unknown model_type {model_type!r}. Valid: {', '.join(MODEL_TYPES)}")
        roles = special_token_roles(special_tokens, PLAIN)
        if "unknown" not in roles:
            raise TextError("SentencePiece cannot do without an unknown token.")
        least = len(tokens_in(roles)) + 1 + 256 * bool(byte_fallback or lossless)
        check_size(vocabulary_size, least)
        options = {
            "model_type": model_type,
            "vocab_size": vocabulary_size,
            "byte_fallback": bool(byte_fallback or lossless),
            "normalization_rule_name": "identity" if lossless else normalization,
            "remove_extra_whitespaces": not lossless,
            "add_dummy_prefix": not lossless,
            "character_coverage": character_coverage,
            "num_threads": num_threads,
            **_meta_pieces(roles),
        }
        model = _train(stream_texts(files_or_texts), options)
        return cls(with_exact_scores(model) if model_type == "unigram" else model, roles)

    @classmethod
    def from_file(cls, path: Path, special_tokens: dict[str, Any] | None = None) -> SentencePiece:
        """Reads a SentencePiece model file, such as one published with a pretrained model.

        Args:
            path: str or path.
            special_tokens: dict of role to token, or None for those that the model itself names.

        Raises:
            InvalidTokenizerError: no such file, or not a SentencePiece model.
        """
        return cls(read_file(path), special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return self._size

    @property
    def lossless(self) -> bool:
        """Whether the model normalizes nothing, keeps every space, and has bytes for what it has no piece for."""
        return self._lossless

    def token_to_id(self, token: str) -> int | None:
        index = self._processor.piece_to_id(token)
        return index if self._processor.id_to_piece(index) == token else None

    def id_to_token(self, index: int) -> str:
        return self._processor.id_to_piece(self._check_id(index))

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Any, offsets: Any) -> tuple[list, Any]:
        if not offsets:
            if self._lossless and any(SPACE in text for text in texts):
                return [self._encode_escaped(text, False)[0] for text in texts], None
            return self._processor.encode(texts), None
        pairs = [self._encode_escaped(text, True) for text in texts]
        return [ids for ids, _ in pairs], [spans for _, spans in pairs]

    def _encode_escaped(self, text: str, offsets: Any):
        """Spells U+2581, which the model takes for a space, in bytes when the model is lossless."""
        parts = text.split(SPACE) if self._lossless else [text]
        ids, spans, begin = [], [], 0
        for number, part in enumerate(parts):
            if number:
                ids += [self._byte_ids[value] for value in SPACE.encode()]
                spans += [(begin, begin + 1)] * 3
                begin += 1
            if offsets:
                mapping = self._processor.encode_as_offset_mapping(part)
                ids += mapping["ids"]
                spans += _whole_characters(mapping["offsets"], begin)
            else:
                ids += self._processor.encode(part)
            begin += len(part)
        return ids, spans

    def _graph(self) -> Any:
        from keras_transformer.text.tokenizers.graphs import SentencePieceGraph

        return SentencePieceGraph(self)

    def _files(self) -> dict[str, bytes]:
        return {FILE: self._model}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: dict[str, Any] | None, options: dict[str, Any]
    ) -> SentencePiece:
        return cls(files[FILE], special_tokens)


def _spaced(text: str):
    return text.replace(" ", SPACE)


def _whole_characters(offsets: Any, shift: Any):
    """Offsets where the bytes that spell a character all have its offset; the library gives it to the last alone."""
    spans: list[tuple[int, int]] = []
    stop = None
    for begin, end in reversed(offsets):
        if begin == end and spans and stop is not None and end == stop[0]:
            begin, end = stop
        else:
            stop = (begin, end)
        spans.append((begin + shift, end + shift))
    return spans[::-1]


def _meta_pieces(roles: dict[str, Any]):
    """The library's options for special tokens with the ids 0, 1, ... in the order of `roles`."""
    tokens = tokens_in(roles)
    own = {"pad": "pad", "unknown": "unk", "start": "bos", "end": "eos"}
    options = {}
    for role, name in own.items():
        options[f"{name}_id"] = tokens.index(roles[role]) if role in roles else -1
        if role in roles:
            options[f"{name}_piece"] = roles[role]
    others = [token for token in tokens if token not in [roles.get(role) for role in own]]
    return {**options, "control_symbols": others} if others else options


def _own_roles(processor: Any):
    ids = {
        "pad": processor.pad_id(),
        "unknown": processor.unk_id(),
        "start": processor.bos_id(),
        "end": processor.eos_id(),
    }
    roles = {role: processor.id_to_piece(index) for role, index in ids.items() if index >= 0}
    controls = [
        processor.id_to_piece(index)
        for index in range(processor.vocab_size())
        if processor.is_control(index) and index not in ids.values()
    ]
    for role, token in (("mask", "<mask>"), ("mask", "[MASK]"), ("classification", "[CLS]"), ("separator", "[SEP]")):
        if token in controls and role not in roles:
            roles[role] = controls.pop(controls.index(token))
    return {**roles, "additional": controls} if controls else roles


def _train(texts: Any, options: dict[str, Any]):
    library = _library()
    writer, lines = io.BytesIO(), _Lines(texts)
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=writer,
            hard_vocab_limit=False,
            input_sentence_size=MAX_LINES,
            shuffle_input_sentence=True,
            max_sentence_length=2**30,
            minloglevel=2,
            **options,
        )
    except (RuntimeError, OSError) as error:
        if lines.error is not None:
            raise lines.error from None
        raise TextError(f"SentencePiece could not be trained: {str(error).split('] ')[-1]}") from error
    return writer.getvalue()


class _Lines:
    """The lines of texts, and the error that ended them: the library reports it as one of its own."""

    def __init__(self, texts: Any) -> None:
        self._texts = texts
        self.error = None

    def __iter__(self):
        try:
            yield from lines_of(self._texts)
        except TextError as error:
            self.error = error
            raise
