"""What is fuzzed: how a case is made from a seed, and what is done with it."""

import base64
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys

from tests.fuzz.mutations import json_bytes, mutated_bytes

DATA = pathlib.Path(__file__).parents[1] / "data"
TEXT = "The naïve cat sat on 3 mats, didn't it? 漢字 \u0301 <s>[MASK]\n\t😀 "


class Target:
    """Something that reads what strangers wrote.

    Attributes:
        seconds: float. The time limit of a case.
        errors: tuple of names of the base classes of its typed errors.
    """

    seconds = 30.0
    errors = ()

    def prepare(self, folder):
        """Imports what the cases need and makes seeds in a folder. It runs nothing that starts threads."""

    def make(self, rng, case):
        """Writes a mutated seed into the empty folder `case`."""
        raise NotImplementedError

    def run(self, case):
        """Uses the case, and returns a word for the table."""
        raise NotImplementedError


class Safetensors(Target):
    """Folders of checkpoints: their config, their safetensors files, and the headers of these."""

    errors = ("CheckpointError", "TextError", "VisionError", "AudioError", "FeatureExtractorError")
    seconds = 60.0

    def prepare(self, folder):
        import safetensors.numpy  # noqa: F401

        import keras_transformer.checkpoints.reading  # noqa: F401

        self.seeds = sorted(path.parent for path in (DATA / "checkpoints").glob("*/config.json"))

    def make(self, rng, case):
        shutil.copytree(rng.choice(self.seeds), case, dirs_exist_ok=True)
        for path in case.glob("*.npz"):
            path.unlink()
        others = [path for path in case.glob("*.json") if path.name != "config.json"]
        weights = case / "model.safetensors"
        kind = rng.random()
        if kind < 0.5:
            _mutate_json(rng, case / "config.json", case)
        elif kind < 0.7 and weights.is_file():
            _mutate_header(rng, weights, case)
        elif kind < 0.85 and weights.is_file():
            _mutate_bytes(rng, weights, 4096)
        else:
            _mutate_json(rng, rng.choice(others or [case / "config.json"]), case)

    def run(self, case):
        from keras_transformer import checkpoints

        return type(checkpoints.from_huggingface(case, verbose=0)).__name__


class Gguf(Target):
    """GGUF files, mostly their metadata."""

    errors = ("CheckpointError", "TextError")
    seconds = 60.0

    def prepare(self, folder):
        import gguf  # noqa: F401

        import keras_transformer.checkpoints.gguf.reading  # noqa: F401

        self.seeds = sorted(path for path in (DATA / "gguf").glob("*.gguf"))

    def make(self, rng, case):
        content = rng.choice(self.seeds).read_bytes()
        data = _with_other_setting(rng, content) if rng.random() < 0.6 else mutated_bytes(rng, content, head=2048)
        (case / "model.gguf").write_bytes(data)

    def run(self, case):
        from keras_transformer import checkpoints

        return type(checkpoints.from_gguf(case / "model.gguf", verbose=0)).__name__


class Tokenizers(Target):
    """Folders of tokenizers, and texts."""

    errors = ("TextError",)
    seconds = 20.0

    def prepare(self, folder):
        import sentencepiece  # noqa: F401
        import tokenizers  # noqa: F401

        import keras_transformer.text.hugging_face.folder
        import keras_transformer.text.loading  # noqa: F401

        self.seeds = sorted(path for path in (DATA / "tokenizers").iterdir() if path.is_dir())

    def make(self, rng, case):
        shutil.copytree(rng.choice(self.seeds), case, dirs_exist_ok=True)
        files = [path for path in sorted(case.iterdir()) if path.name != "expected.json"]
        path = rng.choice(files)
        if path.suffix == ".json" and rng.random() < 0.9:
            _mutate_json(rng, path, case, _tokenizer_mutation)
        else:
            _mutate_bytes(rng, path, None)

    def run(self, case):
        from keras_transformer.text import from_huggingface

        tokenizer = from_huggingface(case)
        for text in (TEXT, TEXT * 200, "a" * 20_000, ""):
            ids = tokenizer.encode(text, **tokenizer.template_options) if hasattr(tokenizer, "template_options") else []
            tokenizer.decode(ids, skip_special_tokens=False)
        tokenizer.encode_pair(TEXT, "a")
        tokenizer.encode_with_offsets(TEXT)
        tokenizer.encode(TEXT, allow_special_tokens=True)
        return f"{len(ids)} ids" if tokenizer.vocabulary_size < 0 else "encoded"


class Bundle(Target):
    """Base class of the targets that are files of a bundle, in one runtime."""

    errors = ("ExportError", "GenerationError", "TextError")
    files = "*"
    backends = ("onnx", "tflite", "saved_model")
    repairs = True

    def prepare(self, folder):
        import ai_edge_litert.interpreter  # noqa: F401
        import onnxruntime  # noqa: F401

        import keras_transformer.export.loading.load
        import keras_transformer.text.loading  # noqa: F401

        if not (folder / "done").exists():
            subprocess.run(
                [sys.executable, "-m", "tests.fuzz.seeds", str(folder)], check=True, stdout=subprocess.DEVNULL
            )
        self.seeds = [folder / "mlp", folder / "gpt"]

    def make(self, rng, case):
        seed = rng.choice(self.seeds)
        shutil.copytree(seed, case / "bundle")
        files = sorted(path for path in (case / "bundle").rglob(self.files) if path.is_file())
        path = rng.choice(files)
        self.mutate(rng, path, case)
        if self.repairs:
            _repair(case / "bundle")
        known = json.loads((seed / "manifest.json").read_text())["artifacts"]
        (case / "backend").write_text(rng.choice([each for each in self.backends if each in known] or ["onnx"]))

    def mutate(self, rng, path, case):
        _mutate_bytes(rng, path, None)

    def run(self, case):
        from keras_transformer.export import load, verify_bundle

        backend = (case / "backend").read_text()
        model = load(case / "bundle", backend, num_threads=1)
        if hasattr(model, "generate"):
            model.generate([[3, 4], [5]], max_new_tokens=3)
        else:
            model(model.example())
        verify_bundle(case / "bundle", [backend])
        return "as before"


def _repair(bundle):
    """Writes the hashes of changed files into the manifest, unless that is what was changed."""
    from keras_transformer.export.bundle.manifest import file_records

    path = bundle / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
        manifest["files"] = {name: each.to_dict() for name, each in file_records(bundle).items() if name != path.name}
    except (ValueError, TypeError):
        return
    path.write_text(json.dumps(manifest))


class Manifests(Bundle):
    """Manifests with wrong fields."""

    files = "manifest.json"
    repairs = False
    backends = ("onnx", "tflite")

    def mutate(self, rng, path, case):
        _mutate_json(rng, path, case)


class Bundles(Bundle):
    """Any file of a bundle, with or without its hash."""

    backends = ("onnx", "tflite")

    def make(self, rng, case):
        self.repairs = rng.random() < 0.7
        super().make(rng, case)

    def mutate(self, rng, path, case):
        if path.suffix == ".json" and rng.random() < 0.7:
            _mutate_json(rng, path, case)
        else:
            _mutate_bytes(rng, path, None)


class Tflite(Bundle):
    """TFLite files."""

    files = "*.tflite"
    backends = ("tflite",)


class Onnx(Bundle):
    """ONNX files."""

    files = "*.onnx"
    backends = ("onnx",)


class Http(Target):
    """Bodies of requests to the text server."""

    seconds = 20.0
    bodies = (
        {"model": "tiny", "prompt": "abc", "max_tokens": 5, "temperature": 0.7, "top_p": 0.9, "seed": 1, "n": 2},
        {"model": "tiny", "prompt": ["ab", "c"], "max_tokens": 3, "stop": ["a", "bc"], "stream": True, "echo": False},
        {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 3, "logprobs": None, "frequency_penalty": 0.1, "top_k": 3},
        {
            "model": "tiny",
            "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
            "max_tokens": 3,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}},
        },
    )

    def prepare(self, folder):
        import starlette.applications  # noqa: F401

        import keras_transformer.generation.engine.http
        import keras_transformer.text  # noqa: F401

    def make(self, rng, case):
        body = rng.choice(self.bodies)
        (case / "body.json").write_bytes(json_bytes(rng, body, case.parent / "outside"))
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        (case / "path").write_text(path)

    def run(self, case):
        import asyncio

        from tests.fuzz.text_server import answer, engine

        with engine() as served:
            body, path = (case / "body.json").read_bytes(), (case / "path").read_text()
            status, reply = asyncio.run(answer(served, path, body))
            if status >= 500 or (status >= 400 and "error" not in json.loads(reply)):
                raise RuntimeError(f"status {status}: {reply[:300]!r}")
            if not served.is_open:
                raise RuntimeError("the engine is closed")
            again, _ = asyncio.run(answer(served, "/v1/completions", json.dumps(self.bodies[0]).encode()))
            if again != 200:
                raise RuntimeError(f"the next request has status {again}")
        return f"status {status}"


TARGETS = {
    "bundles": Bundles,
    "manifests": Manifests,
    "tflite": Tflite,
    "onnx": Onnx,
    "safetensors": Safetensors,
    "gguf": Gguf,
    "tokenizers": Tokenizers,
    "http": Http,
}


def _mutate_bytes(rng, path, head):
    path.write_bytes(mutated_bytes(rng, path.read_bytes(), head))


def _mutate_json(rng, path, case, change=None):
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return _mutate_bytes(rng, path, None)
    if change is not None and rng.random() < 0.5:
        value = change(rng, value)
    path.write_bytes(json_bytes(rng, value, case.parent / "outside"))
    return None


def _mutate_header(rng, path, case):
    """Mutates the JSON header of a safetensors file."""
    content = path.read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    header = json_bytes(rng, json.loads(content[8 : 8 + size]), case.parent / "outside")
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])


def _tokenizer_mutation(rng, value):
    """Repeats or damages parts of the pipeline of a `tokenizer.json`, which random fields rarely reach."""
    if not isinstance(value, dict) or "pre_tokenizer" not in value:
        return value
    lists = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    name = rng.choice(list(lists))
    part, kind = value.get(name), rng.randrange(4)
    replacing = {
        "type": "Replace",
        "pattern": {rng.choice(("String", "Regex")): rng.choice(("a", "", " ", "(a|b)*", ".*"))},
    }
    replacing["content"] = rng.choice(("aa", "", "a" * 1000, " "))
    charsmap = rng.choice(
        (b"", bytes(4), bytes(1028), b"\xff" * 4, rng.randbytes(40), struct.pack("<I", 1024) + bytes(1025))
    )
    mapping = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    if kind == 0 and part is not None:
        value[name] = {"type": "Sequence", lists[name]: [part] * rng.choice((2, 8, 60))}
    elif kind == 1:
        value[name] = {"type": "Sequence", lists[name]: [replacing] * rng.choice((1, 3, 30))}
    elif kind == 2:
        value["normalizer"] = mapping
    return value


def _with_other_setting(rng, content):
    """Returns a GGUF file with another value of one setting: keys are followed by a type of four bytes and the value."""
    data = bytearray(content)
    ends = [match.end() + 4 for match in re.finditer(rb"[a-z0-9_]+\.[a-z0-9_.]*[a-z0-9_]", content[:4096])]
    numbers = (0, 1, 2, 3, 7, 255, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
    for at in rng.sample(ends, min(len(ends), rng.choice((1, 1, 2)))):
        value = struct.pack("<I", rng.choice(numbers))
        data[at : at + 4] = rng.choice((value, struct.pack("<f", rng.choice((-1.0, 0.0, 1e30, float("nan"))))))
    return bytes(data)


def generator_of(seed, target, number):
    """Returns the `random.Random` of a case."""
    return random.Random(f"{seed}:{target}:{number}")
