"""One small tokenizer of each kind, trained once."""

import pathlib
import random
import unicodedata

import pytest

from keras_transformer.text import (
    BytePair,
    Bytes,
    Characters,
    InterspersedCharacters,
    SentencePiece,
    WordPiece,
    from_huggingface,
)

DATA = pathlib.Path(__file__).parents[1] / "data" / "tokenizers"

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "the cat sat on the mat; the dog sat on the log.",
    "Zwei junge Männer sind im Freien, in der Nähe vieler Büsche.",
    "Straße, naïve café: 12 + 30 = 42!",
    "我们在这里，你好吗？",
    "low lower lowest, new newer newest; wide wider widest",
] * 3


def interspersed(**options):
    tokens = ["_", "<pad>", "<unk>", "<s>", "</s>", "<mask>", *sorted({*"".join(CORPUS)} - {"_"})]
    roles = {"pad": "<pad>", "unknown": "<unk>", "start": "<s>", "end": "</s>", "mask": "<mask>"}
    return InterspersedCharacters({token: index for index, token in enumerate(tokens)}, roles, **options)


MAKERS = {
    "wordpiece": lambda: WordPiece.train(CORPUS, 250),
    "wordpiece cased": lambda: WordPiece.train(CORPUS, 250, lowercase=False),
    "unigram": lambda: SentencePiece.train(CORPUS, 420),
    "unigram lossless": lambda: SentencePiece.train(CORPUS, 420, lossless=True),
    "unigram without bytes": lambda: SentencePiece.train(CORPUS, 160, byte_fallback=False),
    "bpe": lambda: SentencePiece.train(CORPUS, 420, model_type="bpe"),
    "bpe lossless": lambda: SentencePiece.train(CORPUS, 420, model_type="bpe", lossless=True),
    "byte_pair": lambda: BytePair.train(CORPUS, 330),
    "characters": lambda: Characters.train(CORPUS),
    "characters lossless": lambda: Characters.train(CORPUS, byte_fallback=True),
    "bytes": lambda: Bytes(),
    "interspersed_characters": interspersed,
    "interspersed_characters as they are": lambda: interspersed(blanks=False, normalize=False),
    "hugging_face": lambda: from_huggingface(DATA / "roberta"),
    "hugging_face unigram": lambda: from_huggingface(DATA / "camembert"),
}
LOSSLESS = ["unigram lossless", "bpe lossless", "byte_pair", "characters lossless", "bytes"]
IN_GRAPH = [name for name in MAKERS if not name.startswith(("byte_pair", "hugging_face", "interspersed"))]


@pytest.fixture(scope="session")
def made():
    """A function of a name that gives the tokenizer, made when it is first asked for."""
    tokenizers = {}

    def make(name):
        if name not in tokenizers:
            tokenizers[name] = MAKERS[name]()
        return tokenizers[name]

    make.names, make.corpus = list(MAKERS), CORPUS
    return make


@pytest.fixture(params=MAKERS)
def tokenizer(request, made):
    return made(request.param)


@pytest.fixture(params=LOSSLESS)
def lossless(request, made):
    return made(request.param)


def any_text(generator, length):
    """Random text over all of Unicode, and the places in it where tokenizers go wrong."""
    edges = [
        "  ",
        "\n\n",
        "\t",
        "\r\n",
        "\u2581",
        "\x00",
        "\u200d",
        "\ufeff",
        "\u2028",
        "<s>",
        "[SEP]",
        "e\u0301",
        "\U0001f469\u200d\U0001f4bb",
    ]
    blocks = [
        (0, 0x80),
        (0x80, 0x250),
        (0x300, 0x370),
        (0x2500, 0x2600),
        (0x4E00, 0x4F00),
        (0x1F600, 0x1F650),
        (0, 0x110000),
    ]
    parts = []
    while len(parts) < length:
        character = chr(generator.randrange(*generator.choice(blocks)))
        if generator.random() < 0.2:
            parts.append(generator.choice(edges))
        elif unicodedata.category(character) != "Cs":
            parts.append(character)
    return "".join(parts)


@pytest.fixture(scope="session")
def texts_of_all_kinds():
    generator = random.Random(0)
    fixed = [
        "",
        " ",
        "  a  ",
        "\n",
        "a\n\n b",
        "\u2581",
        " \u2581 \u2581",
        "<s>",
        "[MASK] <pad>",
        "\U0010ffff",
        "\ufffd",
        "\ufb01 \u00c5 \u2126",
    ]
    return fixed + [any_text(generator, generator.randrange(1, 30)) for _ in range(300)]
