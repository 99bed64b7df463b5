"""Trains a tiny tokenizer of each family of Hugging Face's and writes its folder, with what transformers makes of texts.

`NAME/` holds what transformers saves, `NAME_old/` the vocabulary files that came before `tokenizer.json`. Needs
transformers, tokenizers, sentencepiece and protobuf; run from the root of the repository:
`python tests/data/tokenizers/make_tokenizers.py`.
"""

import io
import json
import random
import shutil
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.",
    "the cat sat on the mat; the dog sat on the log. It's 12:30, isn't it?",
    "Zwei junge M\u00e4nner sind im Freien, in der N\u00e4he vieler B\u00fcsche.",
    "Stra\u00dfe, na\u00efve caf\u00e9: 12 + 30 = 42! We've 1,000 of them.",
    "\u6211\u4eec\u5728\u8fd9\u91cc\uff0c\u4f60\u597d\u5417\uff1f low lower lowest, new newer newest; wide wider widest",
] * 6
TEXTS = [
    "The quick brown fox isn't lazy , is it ?",
    "the dog sat.  Two  spaces, and\ta tab\nand a line ",
    "Stra\u00dfe na\u00efve Caf\u00e9 \u00c5ngstr\u00f6m e\u0301 \ufb01ne \uff11\uff12 \u6211\u4eec\u5728\u8fd9\u91cc",
    "emoji \U0001f600 and \u0416\u0416 unknown \x07 bytes",
    " leading ``quotes'' and 1,000 + 42",
    "",
    " ",
    "widest",
]
PAIRS = [("the dog sat on the log", "It's new."), ("low", "the cat sat on the mat; the dog sat on the log")]
# Its normalisation, small where the usual one takes a quarter of a megabyte: a ligature and wide digits.
RULES = "FB01\t66 69\nFF11\t31\nFF12\t32\n"


def byte_pairs(size, special, suffix="", normalizer=None, pre_tokenizer=None, alphabet=None):
    """Vocabulary and merges of a byte-level BPE."""
    tokenizer = tokenizers.Tokenizer(models.BPE(**({"end_of_word_suffix": suffix} if suffix else {})))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=letters,
        show_progress=False,
        **({"end_of_word_suffix": suffix} if suffix else {}),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def sentences(size, kind, first, **options):
    """A SentencePiece model whose first pieces are `first`, "unk" among them."""
    rules = HERE / "rules.tsv"
    rules.write_text(RULES)
    ids = {"pad_id": -1, "bos_id": -1, "eos_id": -1}
    names = {"<unk>": "unk", "<pad>": "pad", "<s>": "bos", "</s>": "eos"}
    names.update({"<bos>": "bos", "<eos>": "eos"})
    others = []
    for place, token in enumerate(first):
        if token in names:
            ids[f"{names[token]}_id"] = place
            ids[f"{names[token]}_piece"] = token
        else:
            others.append(token)
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=writer,
        vocab_size=size,
        model_type=kind,
        control_symbols=others,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
        **{"normalization_rule_tsv": str(rules), **options},
    )
    rules.unlink()
    return writer.getvalue()


def bert():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    vocabulary = tokenizer.get_vocab()
    return transformers.BertTokenizer(vocab=vocabulary), {
        "vocab.txt": "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.get))
    }


def pair_files(vocabulary, merges):
    text = "#version: 0.2\n" + "".join(f"{one} {two}\n" for one, two in merges)
    return {"vocab.json": json.dumps(vocabulary, ensure_ascii=False), "merges.txt": text}


def roberta():
    vocabulary, merges = byte_pairs(330, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return transformers.RobertaTokenizer(vocab=vocabulary, merges=merges), pair_files(vocabulary, merges)


def gpt2():
    vocabulary, merges = byte_pairs(320, ["<|endoftext|>"])
    return transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges), pair_files(vocabulary, merges)


def clip():
    empty = transformers.CLIPTokenizer().backend_tokenizer
    special = ["<|startoftext|>", "<|endoftext|>"]
    vocabulary, merges = byte_pairs(420, [], "</w>", empty.normalizer, empty.pre_tokenizer)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Every byte may end a word.
    tokens = list(
        dict.fromkeys([*sorted(vocabulary, key=vocabulary.get), *(f"{each}</w>" for each in letters), *special])
    )
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges), pair_files(vocabulary, merges)


def whisper():
    vocabulary, merges = byte_pairs(310, [])
    vocabulary = {**vocabulary, "<|endoftext|>": len(vocabulary)}
    names = [
        "startoftranscript",
        "en",
        "de",
        "translate",
        "transcribe",
        "startoflm",
        "startofprev",
        "nospeech",
        "notimestamps",
    ]
    size = len(vocabulary)
    special = {f"<|{name}|>": size + place for place, name in enumerate(names)}
    moments = {f"<|{0.02 * place:.2f}|>": size + len(names) + place for place in range(6)}
    listed = {
        str(index): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token in special,
        }
        for token, index in {**special, **moments}.items()
    }
    folder = HERE / "whisper_old"
    files = pair_files(vocabulary, merges)
    write_files(
        folder,
        {
            **files,
            "tokenizer_config.json": json.dumps(
                {"added_tokens_decoder": listed, "tokenizer_class": "WhisperTokenizer"}
            ),
        },
    )
    tokenizer = transformers.WhisperTokenizer.from_pretrained(folder)
    return tokenizer, None


def qwen2():
    empty = transformers.Qwen2Tokenizer().backend_tokenizer
    vocabulary, merges = byte_pairs(330, ["<|endoftext|>", "<|im_start|>"], "", empty.normalizer, empty.pre_tokenizer)
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    return tokenizer, pair_files(vocabulary, merges)


def bloom():
    vocabulary, merges = byte_pairs(330, ["<unk>", "<s>", "</s>", "<pad>"])
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    words = pre_tokenizers.Split(tokenizers.Regex(r" ?[^(\s|[.,!?\u2026\u3002\uff0c])]+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    options = {
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "padding_side": "left",
    }
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options), None


def modernbert():
    vocabulary, merges = byte_pairs(330, ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"])
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = {"single": "[CLS]:0 $A:0 [SEP]:0", "pair": "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"}
    tokenizer.post_processor = processors.TemplateProcessing(
        **template, special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    )
    # Such files carry the settings of whoever saved them.
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"], pad_token="[PAD]", length=7)
    roles = {f"{name.lower()}_token": f"[{name}]" for name in ("UNK", "CLS", "SEP", "PAD")}
    mask = AddedToken("[MASK]", lstrip=True, special=True)
    options = {
        "mask_token": mask,
        "model_max_length": 5,
        "truncation_side": "left",
        "clean_up_tokenization_spaces": True,
    }
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles, **options), None


def from_sentences(name, model, file, config):
    write_files(HERE / f"{name}_old", {file: model, "tokenizer_config.json": json.dumps(config)})
    return getattr(transformers, config["tokenizer_class"]).from_pretrained(HERE / f"{name}_old"), None


def t5():
    model = sentences(260, "unigram", ["<pad>", "</s>", "<unk>"])
    return from_sentences("t5", model, "spiece.model", {"tokenizer_class": "T5Tokenizer", "extra_ids": 7})


def albert():
    model = sentences(200, "unigram", ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    return from_sentences(
        "albert", model, "spiece.model", {"tokenizer_class": "AlbertTokenizer", "clean_up_tokenization_spaces": True}
    )


def deberta_v2():
    special = ["[PAD]", "[CLS]", "[SEP]"]
    model = sentences(260, "unigram", special, unk_id=3, unk_piece="[UNK]", unk_surface=" [UNK] ")
    config = {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": False, "split_by_punct": True}
    return from_sentences("deberta_v2", model, "spm.model", config)


def xlnet():
    model = sentences(260, "unigram", ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"])
    return from_sentences("xlnet", model, "spiece.model", {"tokenizer_class": "XLNetTokenizer"})


def camembert():
    model = sentences(260, "unigram", ["<unk>", "<s>", "</s>"])
    return from_sentences("camembert", model, "sentencepiece.bpe.model", {"tokenizer_class": "CamembertTokenizer"})


def xlm_roberta():
    model = sentences(260, "unigram", ["<unk>", "<s>", "</s>"])
    return from_sentences("xlm_roberta", model, "sentencepiece.bpe.model", {"tokenizer_class": "XLMRobertaTokenizer"})


def llama():
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    model = sentences(420, "bpe", ["<unk>", "<s>", "</s>"], normalization_rule_tsv="", **plain)
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "add_eos_token": False,
        "legacy": False,
        "padding_side": "left",
    }
    return from_sentences("llama", model, "tokenizer.model", config)


def gemma():
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}
    model = sentences(
        420, "bpe", ["<pad>", "<eos>", "<bos>", "<unk>"], normalization_rule_tsv="", add_dummy_prefix=False, **plain
    )
    return from_sentences(
        "gemma", model, "tokenizer.model", {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True}
    )


def write_files(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def expected(tokenizer):
    """What a tokenizer of transformers makes of the texts."""
    special = sorted(tokenizer.all_special_tokens)
    texts = [*TEXTS, "a" + "b ".join(special[:6]) + " c", " ".join(special[:6])]
    rows = [tokenizer(text)["input_ids"] for text in texts]
    plain = {"add_special_tokens": False, "split_special_tokens": True}
    pairs = [tokenizer(*pair, return_token_type_ids=True) for pair in PAIRS]
    cut = [tokenizer(*pair, truncation=True, max_length=8, return_token_type_ids=True) for pair in PAIRS]
    generator = random.Random(0)
    drawn = [[generator.randrange(len(tokenizer)) for _ in range(generator.randrange(1, 25))] for _ in range(30)]
    result = {
        "texts": texts,
        "ids": rows,
        "plain": [tokenizer(text, **plain)["input_ids"] for text in texts],
        "cut": [tokenizer(text, truncation=True, max_length=5)["input_ids"] for text in texts],
        "pairs": [[each["input_ids"], each["token_type_ids"]] for each in pairs],
        "cut_pairs": [[each["input_ids"], each["token_type_ids"]] for each in cut],
        "drawn": drawn,
        "decoded": [tokenizer.decode(row, skip_special_tokens=True) for row in rows + drawn],
        "spelled": [tokenizer.decode(row) for row in rows + drawn],
        "size": len(tokenizer),
        "roles": {
            name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
        },
        "special": sorted(index for index, token in tokenizer.added_tokens_decoder.items() if token.special),
    }
    if tokenizer.pad_token is not None:
        batch = tokenizer(texts[:3], padding=True)
        result["padded"] = [batch["input_ids"], batch["attention_mask"]]
    return result


def write(name, make):
    saved, old = HERE / name, HERE / f"{name}_old"
    for folder in (saved, old):
        shutil.rmtree(folder, ignore_errors=True)
    tokenizer, files = make()
    if files is not None:
        cls = type(tokenizer).__name__
        write_files(old, {**files, "tokenizer_config.json": json.dumps({"tokenizer_class": cls})})
    tokenizer.save_pretrained(saved)
    (saved / "chat_template.jinja").unlink(missing_ok=True)
    for folder in (saved, old):
        if folder.exists():
            loaded = type(tokenizer).from_pretrained(folder)
            content = json.dumps(expected(loaded), ensure_ascii=True, separators=(",", ":"))
            (folder / "expected.json").write_text(content + "\n")
            path = folder / "tokenizer.json"
            if path.exists():  # Without the indentation.
                path.write_text(
                    json.dumps(json.loads(path.read_text()), ensure_ascii=False, separators=(",", ":")) + "\n"
                )


MAKERS = (bert, roberta, gpt2, clip, whisper, qwen2, bloom, modernbert)
MAKERS += (t5, albert, deberta_v2, xlnet, camembert, xlm_roberta, llama, gemma)


def main():
    for make in MAKERS:
        try:
            write(make.__name__, make)
        except Exception as error:
            raise RuntimeError(make.__name__) from error


if __name__ == "__main__":
    main()
