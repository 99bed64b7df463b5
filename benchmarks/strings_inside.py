"""Lines of mixed scripts whose ids differ between the tokenizer in Python and the one inside the exported file.

    python benchmarks/strings_inside.py
    python benchmarks/strings_inside.py --lines 1000000 --tokenizers tokenizers/gpt2 tokenizers/bert --runtimes tflite onnx
    python benchmarks/strings_inside.py --lines 20000 --operators

The lines are random: words and code points of Latin with accents, Cyrillic, Greek, Chinese, Japanese, Korean, Arabic,
Hebrew, Devanagari, Thai and others, emoji with joiners, combining marks in any order, control characters, spaces of all
kinds, numbers, punctuation, special tokens, long words, and any code point. Each line is encoded by the tokenizer in
Python, and by the file in its runtime; the ids of the file are decoded by the file too, and compared with the text of the
tokenizer.

`tflite` and `onnx` take bytes, `strings` is an ONNX file that takes strings, with onnxruntime-extensions. With `--operators`
the tokenizers of onnxruntime-extensions itself are compared too, where it has one for the model. The tokenizers are folders
of Hugging Face; without any, those of `tests/data/tokenizers`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import itertools
import json
import pathlib
import random
import tempfile
import time

import numpy as np
from measure import Table, versions

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "data" / "tokenizers"
DEFAULT = ("bert", "gpt2", "llama", "gemma")
RUNTIMES = ("tflite", "onnx", "strings")
BATCH = 256
WORDS = [
    word
    for text in (
        "the quick brown fox jumps over lazy dogs I'll don't we've",
        "they're CAN'T O'Neill state-of-the-art e.g. www.example.com",
        "naïve café Ångström Straße GROẞE coöperate façade señor",
        "İstanbul ıĞ Dvořák Łódź ﬁne œuvre Привет МИР ёлка Ελλάδα",
        "ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ 我们 你好 東京都 ひらがな カタカナ ﾊﾝｶｸ 한국어 각 مرحبا العربية",
        "שָׁלוֹם नमस्ते क्षत्रिय हिन्दी সবাই தமிழ் ภาษาไทย ສະບາຍດີ",
        "မြန်မာ ខ្មែរ አማርኛ ᏣᎳᎩ 😀 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 ❤️ ½ ² Ⅷ ٣٤٥",
        "१२३ 12345 3.14159 1,000,000 2026-11-26 #tag @user <s> [MASK]",
        "<|endoftext|> </s> ... !!! ?? -- — “quoted” «x» （全角） ， 。 $5",
        "€10 <b>x</b> {y} \\n \\\\ ~^` ©®™ ▁ ▁▁a \xa0 \u3000 \u200b",
        "\u2028 \ufeff \xad",
    )
    for word in text.split(" ")
]


def line(generator):
    """A line of words of many scripts, or of a random text."""
    from keras_transformer.export.text.probe_texts import random_text

    kind = generator.random()
    if kind < 0.55:
        words = generator.choices(WORDS, k=generator.randrange(1, 16))
        separators = generator.choices((" ", " ", " ", " ", "", "  ", "\n", "\t", ", "), k=len(words))
        return "".join(itertools.chain(*zip(words, separators, strict=True)))
    if kind < 0.97:
        return random_text(generator, generator.randrange(1, 50))
    return generator.choice(WORDS) * generator.randrange(1, 60)


def rows_of(ids, mask):
    """Padded ids as lists."""
    return [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]


class InFile:
    """A tokenizer in a runtime."""

    def __init__(self, runtime, folder, threads):
        from keras_transformer.export import load, write_text_onnx
        from keras_transformer.export.text import extensions

        self._is_text = runtime == "strings"
        if self._is_text:
            names = {"tokenize": folder / "tokenize.onnx", "detokenize": folder / "detokenize.onnx"}
            for name, path in names.items():
                write_text_onnx(folder / "bundle", path, name)
            self._to_ids, self._to_text = (extensions.session(str(path)) for path in names.values())
        else:
            self._to_ids, self._to_text = (
                load(folder / "bundle", runtime, name, num_threads=threads) for name in ("tokenize", "detokenize")
            )

    def encode(self, lines):
        """The ids of lines, and padded arrays of them."""
        if self._is_text:
            ids, mask = self._to_ids.run(["token_ids", "padding_mask"], {"text": np.array(lines, object)})
            return rows_of(ids, mask), {"token_ids": ids, "padding_mask": mask}
        arrays = self._to_ids(list(lines))
        return rows_of(arrays["token_ids"], arrays["padding_mask"]), arrays

    def decode(self, arrays):
        """The texts of padded ids."""
        if self._is_text:
            return self._to_text.run(["text"], arrays)[0].tolist()
        found = self._to_text(arrays)
        rows = zip(found["bytes"], found["lengths"], strict=True)
        return [row[:length].tobytes().decode() for row, length in rows]


class Operator:
    """The tokenizer of onnxruntime-extensions for a model, as its own operator."""

    @staticmethod
    def takes(tokenizer):
        """Whether the library has an operator for a tokenizer: of BERT, or of GPT-2."""
        content = tokenizer.content
        words = content["pre_tokenizer"] or {}
        return content["model"]["type"] == "WordPiece" or (
            words.get("type") == "ByteLevel" and not content["normalizer"]
        )

    def __init__(self, tokenizer):
        import onnx
        from onnx import TensorProto, helper

        from keras_transformer.export.text import extensions

        content = tokenizer.content
        model, vocabulary = content["model"], content["model"]["vocab"]
        if model["type"] == "WordPiece":
            words = "\n".join(sorted(vocabulary, key=vocabulary.get))
            options = {"vocab_file": words, "do_lower_case": int(content["normalizer"]["lowercase"])}
            options |= {"strip_accents": int(content["normalizer"]["lowercase"])}
            node = helper.make_node(
                "BertTokenizer", ["text"], ["ids", "types", "mask"], domain=extensions.DOMAIN, **options
            )
        else:
            merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
            options = {"vocab": json.dumps(vocabulary), "merges": "\n".join(["#version: 0.2", *merges])}
            node = helper.make_node("GPT2Tokenizer", ["text"], ["ids", "mask"], domain=extensions.DOMAIN, **options)
        text = helper.make_tensor_value_info("text", TensorProto.STRING, None)
        results = [helper.make_tensor_value_info("ids", TensorProto.INT64, None)]
        imports = [helper.make_opsetid("", 18), helper.make_opsetid(extensions.DOMAIN, 1)]
        graph = helper.make_graph([node], "operator", [text], results)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "operator.onnx")
            onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
            self._session = extensions.session(path)

    def encode(self, lines):
        """The ids of lines; None where the operator fails."""
        found = []
        for text in lines:
            try:
                found.append(self._session.run(["ids"], {"text": np.array([text], object)})[0].reshape(-1).tolist())
            except Exception:  # It raises no narrower class.
                found.append(None)
        return found, None


def compare(tokenizer, files, number, seed, seconds):
    """For each file the lines and texts that differ, and the seconds it took; the number of lines, and first differences."""
    generator = random.Random(seed)
    options = tokenizer.template_options
    counts = {name: [0, 0, 0.0] for name in files}
    done, ids, start, samples = 0, 0, time.perf_counter(), []
    while done < number and time.perf_counter() - start < seconds:
        lines = [line(generator) for _ in range(min(BATCH, number - done))]
        expected = tokenizer.encode(lines, **options)
        texts = tokenizer.decode(expected)
        for name, file in files.items():
            # Strings of C end before U+0000.
            cut = [text.partition("\x00")[0] for text in lines] if name in ("strings", "operator") else lines
            wanted = expected if cut == lines else tokenizer.encode(cut, **options)
            begin = time.perf_counter()
            found, arrays = file.encode(cut)
            counts[name][2] += time.perf_counter() - begin
            wrong = [index for index, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]]
            counts[name][0] += len(wrong)
            samples += [(name, cut[index], found[index], wanted[index]) for index in wrong[: max(0, 5 - len(samples))]]
            if arrays is not None:
                back = texts if wanted is expected else tokenizer.decode(wanted)
                back = [text.partition("\x00")[0] for text in back] if name == "strings" else back
                counts[name][1] += sum(one != two for one, two in zip(file.decode(arrays), back, strict=True))
        done, ids = done + len(lines), ids + sum(map(len, expected))
    return counts, done, ids, samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", nargs="+", type=pathlib.Path, default=[FOLDER / name for name in DEFAULT])
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--operators", action="store_true", help="also compare the library's own tokenizers")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the longest a tokenizer is compared")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    from keras_transformer.export import export_tokenizer
    from keras_transformer.text import from_huggingface

    table = Table(
        "Lines whose ids or decoded texts differ from those of the tokenizer in Python",
        versions("tensorflow", "ai-edge-litert", "onnxruntime", "onnxruntime-extensions", "tokenizers"),
    )
    for place in arguments.tokenizers:
        tokenizer = from_huggingface(place)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            formats = sorted({"tflite" if name == "tflite" else "onnx" for name in arguments.runtimes})
            report = export_tokenizer(tokenizer, folder / "bundle", formats, progress=False)
            files = {name: InFile(name, folder, arguments.threads) for name in arguments.runtimes}
            if arguments.operators and Operator.takes(tokenizer):
                files["operator"] = Operator(tokenizer)
            counts, lines, ids, samples = compare(tokenizer, files, arguments.lines, arguments.seed, arguments.seconds)
            sizes = {name: each.size for name, each in report.artifacts.items()}
            sizes["strings"] = (folder / "tokenize.onnx").stat().st_size if "strings" in files else None
        for name, (wrong, wrong_texts, seconds) in counts.items():
            table.add(
                tokenizer=place.name,
                vocabulary=tokenizer.vocabulary_size,
                runtime=name,
                lines=lines,
                ids=ids,
                lines_that_differ=wrong,
                texts_that_differ=None if name == "operator" else wrong_texts,
                microseconds_per_line=round(seconds / lines * 1e6),
                kilobytes=sizes.get(name) and round(sizes[name] / 1000),
            )
        for name, text, found, wanted in samples:
            table.note(f"{place.name}, {name}: {text!a:.80}: {str(found):.80}, in Python {str(wanted):.80}")
    table.finish(arguments.json)


if __name__ == "__main__":
    main()
