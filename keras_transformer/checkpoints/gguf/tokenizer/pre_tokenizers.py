"""How byte-level BPE splits text into words, by the name in "tokenizer.ggml.pre".

Names and patterns are those of llama.cpp, `llama-vocab.cpp`; patterns as in the tokenizers that they were made from.
"""

from __future__ import annotations

from typing import Any

from keras_transformer.text import InvalidTokenizerError

Json = dict[str, Any]

_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_REST_OF_CASED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _bytes(use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(*patterns: str) -> Json:
    """Splits by several patterns, one after another."""
    parts = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False} for each in patterns
    ]
    return {"type": "Sequence", "pretokenizers": [*parts, _bytes(False)]}


def _before_gpt2(*parts: Json) -> Json:
    """Splits in other ways, then as GPT-2 does."""
    return {"type": "Sequence", "pretokenizers": [*parts, _bytes(True)]}


_GPT2 = _bytes(True)
_DIGITS = _before_gpt2({"type": "Digits", "individual_digits": True})
_LLAMA3 = _split(rf"{_SHORT}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}")
_QWEN2 = _split(rf"{_SHORT}|{_LEAD}\p{{L}}+|\p{{N}}|{_REST}")
_TEKKEN = _split(rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_REST_OF_CASED}")
_GPT4O = _split(
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_SHORT}?|{_LEAD}{_UPPER}+{_LOWER}*{_SHORT}?|\p{{N}}{{1,3}}|{_REST_OF_CASED}"
)
_DEEPSEEK_CODER = _split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_BY_PATTERN: list[tuple[str, Json]] = [
    (
        "gpt-2 phi-2 mpt olmo jais roberta-bpe jina-v1-en jina-v2-es jina-v2-de jina-v2-code exaone4 a.x-4.0 mellum",
        _GPT2,
    ),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", _DIGITS),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 smaug-bpe dbrx chatglm-bpe glm4", _LLAMA3),
    ("qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open", _QWEN2),
    ("tekken", _TEKKEN),
    ("gpt-4o llama4 kanana2", _GPT4O),
    ("deepseek-coder", _DEEPSEEK_CODER),
]
_PRE_TOKENIZERS = {name: pattern for names, pattern in _BY_PATTERN for name in names.split()}
# Those that begin texts with a token where the file does not say.
_WITH_START = frozenset(["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"])
# Those that take a word as it is if it is a token, and those that normalize.
_WHOLE_WORDS = _WITH_START | {"tekken", "gpt-4o", "llama4", "kanana2"}
_NFC = frozenset(["qwen2", "deepseek-r1-qwen", "megrez", "olmo"])


def pre_tokenizer(name: str, source: str) -> Json:
    """The pre-tokenizer of a name, as in `tokenizer.json`.

    Raises:
        InvalidTokenizerError: the name is not known: another way to split would give other tokens.
    """
    if name not in _PRE_TOKENIZERS:
        known = ", ".join(sorted(_PRE_TOKENIZERS))
        raise InvalidTokenizerError(f"{source}: no pre-tokenizer {name[:80]!r}. Known pre-tokenizers: {known}")
    return _PRE_TOKENIZERS[name]


def name_of(pattern: Json | None, source: str) -> str:
    """The name of a pre-tokenizer of a `tokenizer.json`: the first of those that split alike.

    Raises:
        InvalidTokenizerError: there is none.
    """
    for name, known in _PRE_TOKENIZERS.items():
        if _essence(known) == _essence(pattern):
            return name
    raise InvalidTokenizerError(f"{source}: GGUF files have no name for the pre-tokenizer {str(pattern)[:120]}")


def _essence(pattern: Json | None) -> object:
    """What decides how a pre-tokenizer splits."""
    if pattern is None:
        return None
    if pattern.get("type") == "Sequence":
        return [_essence(each) for each in pattern["pretokenizers"]]
    names = ("type", "pattern", "behavior", "invert", "individual_digits", "use_regex", "add_prefix_space")
    return {name: pattern[name] for name in names if name in pattern}


def normalizer(name: str) -> Json | None:
    """The normalizer of a name, as in `tokenizer.json`; None for none."""
    return {"type": "NFC"} if name in _NFC else None


def takes_whole_words(name: str) -> bool:
    """Whether a word that is a token is not taken apart and merged."""
    return name in _WHOLE_WORDS


def adds_start(name: str) -> bool:
    """Whether texts begin with the start token, where the file does not say."""
    return name in _WITH_START
