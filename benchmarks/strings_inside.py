"""Lines of mixed scripts whose ids differ between the tokenizer in Python and the one inside the exported file.

    python benchmarks/strings_inside.py
    python benchmarks/strings_inside.py --lines 1000000 --tokenizers tokenizers/gpt2 t5/spiece.model --runtimes tflite onnx \
        --state state
    python benchmarks/strings_inside.py --lines 20000 --operators

The lines are random: words and code points of Latin with accents, Cyrillic, Greek, Chinese, Japanese, Korean, Arabic,
Hebrew, Devanagari, Thai and others, emoji with joiners, combining marks in any order, control characters, spaces of all
kinds, numbers, punctuation, special tokens, long words, and any code point. Each line is encoded by the tokenizer in
Python, and by the file in its runtime; the ids of the file are decoded by the file too, and compared with the text of the
tokenizer.

`tflite` and `onnx` take bytes, `strings` is an ONNX file that takes strings, with onnxruntime-extensions. With `--operators`
the tokenizers of onnxruntime-extensions itself are compared too, where it has one for the model. The tokenizers are folders
of Hugging Face or SentencePiece model files; without any, those of `tests/data/tokenizers`. With `--state`, a run that was
ended is continued where it was, with the same files: the folder has them, and what was compared.
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
MAX_SAMPLES, SAVE_SECONDS = 5, 20
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
    from keras_transformer.export.text.files.probe_texts import random_text

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
        from keras_transformer.export.text.files import extensions

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

        from keras_transformer.export.text.files import extensions

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


class Comparison:
    """What was compared so far, kept in a file if one is given, so that a long run can be continued.

    Args:
        files: dict of name to `InFile` or `Operator`.
        path: path of the file, or None.
        key: str. Name of this comparison in the file.
    """

    def __init__(self, files, path, key):
        self._files, self._path, self._key = files, path, key
        self.batches = self.lines = self.ids = 0
        # Lines and texts that differ, and seconds.
        self.counts = {name: [0, 0, 0.0] for name in files}
        self.samples = []
        vars(self).update(self._saved().get(key, {}))

    def _saved(self):
        return json.loads(self._path.read_text()) if self._path and self._path.exists() else {}

    def save(self):
        if self._path:
            own = {name: getattr(self, name) for name in ("batches", "lines", "ids", "counts", "samples")}
            changed = self._path.with_name(f"{self._path.name}.new")
            changed.write_text(json.dumps(self._saved() | {self._key: own}, indent=1))
            changed.replace(self._path)

    def run(self, tokenizer, number, seed, seconds):
        """Compares lines until there are `number` of them, or the seconds have passed."""
        start = saved = time.perf_counter()
        while self.lines < number and time.perf_counter() - start < seconds:
            generator = random.Random(f"{seed} {self.batches}")
            lines = [line(generator) for _ in range(BATCH)]
            self._add(tokenizer, lines[: number - self.lines])
            if time.perf_counter() - saved > SAVE_SECONDS:
                self.save()
                saved = time.perf_counter()
        self.save()

    def _add(self, tokenizer, lines):
        options = getattr(tokenizer, "template_options", {})
        expected = tokenizer.encode(lines, **options)
        texts = tokenizer.decode(expected)
        for name, file in self._files.items():
            # Strings of C end before U+0000.
            cut = [text.partition("\x00")[0] for text in lines] if name in ("strings", "operator") else lines
            wanted = expected if cut == lines else tokenizer.encode(cut, **options)
            begin = time.perf_counter()
            found, arrays = file.encode(cut)
            self.counts[name][2] += time.perf_counter() - begin
            wrong = [index for index, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]]
            self.counts[name][0] += len(wrong)
            room = max(0, MAX_SAMPLES - len(self.samples))
            self.samples += [(name, cut[index], found[index], wanted[index]) for index in wrong[:room]]
            if arrays is not None:
                back = texts if wanted is expected else tokenizer.decode(wanted)
                back = [text.partition("\x00")[0] for text in back] if name == "strings" else back
                self.counts[name][1] += sum(one != two for one, two in zip(file.decode(arrays), back, strict=True))
        self.batches, self.lines, self.ids = (
            self.batches + 1,
            self.lines + len(lines),
            self.ids + sum(map(len, expected)),
        )


def read_tokenizer(place):
    """The tokenizer of a folder of Hugging Face, or of a SentencePiece model file."""
    from keras_transformer.text import SentencePiece, from_huggingface

    return SentencePiece.from_file(place) if place.suffix == ".model" else from_huggingface(place)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", nargs="+", type=pathlib.Path, default=[FOLDER / name for name in DEFAULT])
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--operators", action="store_true", help="also compare the library's own tokenizers")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument(
        "--state", type=pathlib.Path, help="folder of the files and of what was compared, to continue a run"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the longest a tokenizer is compared")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    from keras_transformer.export import export_tokenizer

    table = Table(
        "Lines whose ids or decoded texts differ from those of the tokenizer in Python",
        versions("tensorflow", "ai-edge-litert", "onnxruntime", "onnxruntime-extensions", "tokenizers"),
    )
    for place in arguments.tokenizers:
        tokenizer = read_tokenizer(place)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder) if arguments.state is None else arguments.state / place.stem
            folder.mkdir(parents=True, exist_ok=True)
            formats = sorted({"tflite" if name == "tflite" else "onnx" for name in arguments.runtimes})
            if not (folder / "bundle").exists():
                export_tokenizer(tokenizer, folder / "bundle", formats, progress=False)
            files = {name: InFile(name, folder, arguments.threads) for name in arguments.runtimes}
            if arguments.operators and Operator.takes(tokenizer):
                files["operator"] = Operator(tokenizer)
            lines = None if arguments.state is None else arguments.state / "lines.json"
            done = Comparison(files, lines, f"{place.stem}, {' '.join(files)}, seed {arguments.seed}")
            done.run(tokenizer, arguments.lines, arguments.seed, arguments.seconds)
            manifest = json.loads((folder / "bundle" / "manifest.json").read_text())
            sizes = {name: each["bytes"] for name, each in manifest["artifacts"].items()}
            sizes["strings"] = (folder / "tokenize.onnx").stat().st_size if "strings" in files else None
        for name, (wrong, wrong_texts, seconds) in done.counts.items():
            table.add(
                tokenizer=place.stem,
                vocabulary=tokenizer.vocabulary_size,
                runtime=name,
                lines=done.lines,
                ids=done.ids,
                lines_that_differ=wrong,
                texts_that_differ=None if name == "operator" else wrong_texts,
                microseconds_per_line=round(seconds / done.lines * 1e6),
                kilobytes=sizes.get(name) and round(sizes[name] / 1000),
            )
        for name, text, found, wanted in done.samples:
            table.note(f"{place.name}, {name}: {text!a:.80}: {str(found):.80}, in Python {str(wanted):.80}")
    table.finish(arguments.json)


if __name__ == "__main__":
    main()
