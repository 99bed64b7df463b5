"""Texts on which implementations of a tokenizer are told apart."""

from __future__ import annotations

import random
import unicodedata

# Blocks of code points that random texts are made of.
_BLOCKS = (
    (0x20, 0x7F),
    (0xA0, 0x250),
    (0x300, 0x370),
    (0x370, 0x530),
    (0x590, 0x780),
    (0x900, 0xE80),
    (0x1E00, 0x2000),
    (0x2000, 0x2100),
    (0x3040, 0x3100),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A4),
    (0xF900, 0xFB10),
    (0xFF00, 0xFFF0),
    (0x1F300, 0x1F700),
    (0, 0x110000),
)
_EDGES = (
    " ", "  ", "\n", "\r\n", "\t", "\n\n \n", "\u00a0", "\u3000", "\u2028", "\u200d", "\u200b", "\ufeff", "\u00ad", "\x00",
    "\x1f", "\u0085", "\ufffd", "'s", "'LL", "'\u017f", "\u2581", "<s>", "[SEP]", "</s>", "e\u0301", "\u0130", "\u03a3",
    "\ufb01", "\u1e9e", "\u0345\u0301", "\u302e\u1715", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "12345",
    "\u0663\u0664", "\u00bd", "...", "--", "\u00bf?",
)  # fmt: skip
_FIXED = (
    "The quick, BROWN fox's cat-like 'na\u00efve' \u00c5ngstr\u00f6m!! Don't I'll WE'VE she'd 're 'tis it's.",
    "",
    " ",
    "  a  ",
    "\n",
    "a\n\n b \r\n\r\n  c \t\n ",
    "Stra\u00dfe\tStra\u00dfen\u00a0Zwei\u3000Caf\u00e9 \u200b\u00adlow\x00er\x1fest\nthe\r\nmat",
    "\u6211\u4eec \u4f60\u597dabc\u4f60low\u3002newest\u2026 \uff21\uff22\uff0c",
    "\u00c9\u00c8\u0301e\u0301 \u0130I \u03a3\u0391\u03a3 \u1f48\u0394\u03a5\u03a3\u03a3\u0395\u038e\u03a3",
    "\ufb01 \u00bd \u01c5 \u017f",
    "<s> [SEP] <unk> [MASK]</s> <|endoftext|>",
    "\U0001f600\U0001f469\u200d\U0001f4bb \U0010ffff \ue000 \ufffd \ufeff",
    "1111111 ------ aaaaaaa ...... 3.14159 1,000,000 \u0967\u0968\u0969",
    "a" * 100,
    "a" * 101,
    "\u00e9" * 100 + " " + "\u00e9" * 101,
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u041f\u0440\u0438\u0432\u0435\u0442",
    "\u2581 a\u2581\u2581b \u2581",
)  # fmt: skip
_RANDOM = 130


def random_text(generator: random.Random, length: int) -> str:
    """A text of characters of one or two scripts, with places where implementations differ.

    Args:
        generator: `random.Random`.
        length: number of parts.
    """
    blocks = generator.choices(_BLOCKS, k=2)
    parts: list[str] = []
    while len(parts) < length:
        choice = generator.random()
        character = chr(generator.randrange(*generator.choice(blocks)))
        if choice < 0.12:
            parts.append(generator.choice(_EDGES))
        elif choice < 0.3:
            parts.append(" ")
        elif unicodedata.category(character) != "Cs":
            parts.append(character)
    return "".join(parts)


def _texts() -> tuple[str, ...]:
    generator = random.Random(0)
    return (*_FIXED, *(random_text(generator, generator.randrange(1, 40)) for _ in range(_RANDOM)))


PROBE_TEXTS = _texts()
