"""Tokenizers from the SentencePiece models of checkpoints without `tokenizer.json`."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.tokenizers.sentencepiece_model import (
    CONTROL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    read_charsmap,
    read_pieces,
)
from keras_transformer.utils.types import Config

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.normalizers import Normalizer


def _unigram(
    pieces: list[tuple[str, float]], model: bytes, unknown: int, normalizers: Sequence[Normalizer], prefix: bool = True
) -> tokenizers.Tokenizer:
    """Builds a unigram tokenizer with `Metaspace` pre-tokenization.

    Args:
        pieces: list of token and score.
        model: bytes of the SentencePiece model.
        unknown: int. Id of the unknown token.
        normalizers: list of normalizers before that of the model.
        prefix: bool. Whether to add a space before the first word (`prepend_scheme`).
    """
    tokenizers = library()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=unknown, byte_fallback=False))
    charsmap = read_charsmap(model)
    chain = [*normalizers, *([tokenizers.normalizers.Precompiled(charsmap)] if charsmap else [])]
    if chain:
        tokenizer.normalizer = tokenizers.normalizers.Sequence(chain)
    scheme = "always" if prefix else "never"
    words = tokenizers.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.WhitespaceSplit(), words])
    tokenizer.decoder = tokenizers.decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    _add_symbols(tokenizer, model)
    return tokenizer


def _add_symbols(tokenizer: tokenizers.Tokenizer, model: bytes) -> None:
    """Adds the control and user-defined pieces as tokens, with their ids."""
    added = library().AddedToken
    for piece, _, kind in read_pieces(model):
        if kind in (CONTROL, USER_DEFINED):
            tokenizer.add_tokens([added(piece, normalized=False, special=kind == CONTROL)])


def _scores(model: bytes) -> list[tuple[str, float]]:
    return [(piece, score) for piece, score, _ in read_pieces(model)]


def _t5(model: bytes, config: Config) -> tokenizers.Tokenizer:
    number = config.get("extra_ids", 100)
    if not isinstance(number, int) or not 0 <= number <= 10_000:
        raise InvalidTokenizerError(f"extra_ids must be an int from 0 to 10000. Received: {number!r}")
    extra = [f"<extra_id_{index}>" for index in reversed(range(number))]
    tokenizer = _unigram(_scores(model) + [(token, 0.0) for token in extra], model, 2, [])
    tokenizer.add_special_tokens(extra)
    return tokenizer


def _siglip(model: bytes, config: Config) -> tokenizers.Tokenizer:
    """The tokenizer of SigLIP, which leaves out punctuation."""
    tokenizers = library()
    regex, replace = tokenizers.Regex, tokenizers.normalizers.Replace
    chain = [replace(SPACE, " "), replace(regex(f"[{re.escape(string.punctuation)}]"), "")]
    chain += [replace(regex(r"\s+"), " "), tokenizers.normalizers.Strip()]
    lowercase = [tokenizers.normalizers.Lowercase()] if config.get("do_lower_case", True) else []
    unknown = next(index for index, (_, _, kind) in enumerate(read_pieces(model)) if kind == UNKNOWN)
    return _unigram(_scores(model), model, unknown, [*lowercase, *chain])


def _normalizers(strips_accents: bool, lowercase: bool) -> list[Normalizer]:
    """Normalizers of ALBERT and XLNet."""
    normalizers = library().normalizers
    chain = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if strips_accents:
        chain += [normalizers.NFKD(), normalizers.StripAccents()]
    return [*chain, normalizers.Lowercase()] if lowercase else chain


def _albert(model: bytes, config: Config) -> tokenizers.Tokenizer:
    chain = _normalizers(not config.get("keep_accents"), config.get("do_lower_case") is not False)
    return _unigram(_scores(model), model, 1, chain, config.get("add_prefix_space") is not False)


def _deberta_v2(model: bytes, config: Config) -> tokenizers.Tokenizer:
    tokenizers, pieces = library(), read_pieces(model)
    unknown = next((index for index, (_, _, kind) in enumerate(pieces) if kind == UNKNOWN), 1)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(_scores(model), unk_id=unknown, byte_fallback=False))
    normalizers, parts = tokenizers.normalizers, tokenizers.pre_tokenizers
    spaces = normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " ")
    chain = [spaces, normalizers.NFC(), normalizers.Strip(left=False, right=True)]
    lowercase = [normalizers.Lowercase()] if config.get("do_lower_case") is True else []
    tokenizer.normalizer = normalizers.Sequence([*lowercase, *chain])
    scheme = "first" if config.get("add_prefix_space") is False else "always"
    words = parts.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    punctuation = [parts.Punctuation(behavior="isolated")] if config.get("split_by_punct") is True else []
    tokenizer.pre_tokenizer = parts.Sequence([*punctuation, words])
    tokenizer.decoder = tokenizers.decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    _add_symbols(tokenizer, model)
    return tokenizer


def _xlnet(model: bytes, config: Config) -> tokenizers.Tokenizer:
    tokenizer = _unigram(_scores(model), model, 0, _normalizers(True, config.get("do_lower_case") is True))
    tokenizer.add_special_tokens(["<eop>", "<eod>"])
    return tokenizer


def _camembert(model: bytes, config: Config) -> tokenizers.Tokenizer:
    first = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
    pieces = [*first, *_scores(model)[1:], ("<mask>", 0.0)]
    return _unigram(pieces, model, 3, [], config.get("add_prefix_space") is not False)


def _xlm_roberta(model: bytes, config: Config) -> tokenizers.Tokenizer:
    first = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [*first, *_scores(model)[3:], ("<mask>", 0.0)]
    return _unigram(pieces, model, 3, [], config.get("add_prefix_space") is not False)


def _bpe(model: bytes, **options: object) -> tokenizers.Tokenizer:
    """Builds a BPE tokenizer. The merges are all pairs of pieces that form a piece, the best score of the result first."""
    pieces = read_pieces(model)
    ids = {piece: index for index, (piece, _, _) in enumerate(pieces)}
    scored = []
    for piece, score, _ in pieces:
        pairs = ((piece[:length], piece[length:]) for length in range(1, len(piece)))
        found = [(one, two) for one, two in pairs if one in ids and two in ids]
        scored += [(score, one, two) for one, two in sorted(found, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    # Equal scores, as of runs of spaces, in the order of transformers.
    scored.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    merges = [(one, two) for _, one, two in scored]
    tokenizers = library()
    return tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=ids, merges=merges, fuse_unk=True, byte_fallback=True, **options)
    )


def _llama(model: bytes, config: Config) -> tokenizers.Tokenizer:
    tokenizer, tokenizers = _bpe(model), library()
    prefix, legacy = config.get("add_prefix_space") is not False, config.get("legacy") is True
    scheme = ("always" if legacy else "first") if prefix else "never"
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False)
    parts = [tokenizers.decoders.Replace(SPACE, " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    parts += [tokenizers.decoders.Strip(content=" ", left=1)] if prefix else []
    tokenizer.decoder = tokenizers.decoders.Sequence(parts)
    _add_symbols(tokenizer, model)
    return tokenizer


def _gemma(model: bytes, config: Config) -> tokenizers.Tokenizer:
    tokenizer, tokenizers = _bpe(model, unk_token="<unk>"), library()
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    parts = [tokenizers.decoders.Replace(SPACE, " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    tokenizer.decoder = tokenizers.decoders.Sequence(parts)
    _add_symbols(tokenizer, model)
    return tokenizer


BUILDERS = {
    "t5": _t5,
    "siglip": _siglip,
    "albert": _albert,
    "deberta-v2": _deberta_v2,
    "xlnet": _xlnet,
    "camembert": _camembert,
    "xlm-roberta": _xlm_roberta,
    "llama": _llama,
    "gemma": _gemma,
}
