"""Builds the page from its own files, onnxruntime-web in `node_modules`, and the ONNX files of two bundles.

    cd examples/web && npm install                                 # once: onnxruntime-web, 1.30
    python examples/deploy/make_bundles.py --out bundles
    python examples/web/digits.py --out digits
    python examples/web/build.py --digits digits/bundle --text bundles/decoder --out site
    python -m http.server --directory site                         # and open http://localhost:8000

The result is a folder of static files that needs no other server. Large files are compressed with gzip, because not every
static file server does so; the page decompresses them. The script prints the size of the download.
"""

import argparse
import gzip
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.export import ArraySpec, ExportError
from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.formats import files_of
from keras_transformer.export.onnx.weights.external_data import weight_files

HERE = Path(__file__).parent
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs")
BINARY = "ort-wasm-simd-threaded.wasm"
PACKED = ".packed"  # Not ".gz": some servers set the content encoding for it, and browsers would decompress it first.
WORKER = "service-worker.js"


def main() -> None:
    arguments = parse_arguments()
    try:
        build(arguments.digits, arguments.text, arguments.node_modules, arguments.out)
    except (ExportError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    sizes = {path: path.stat().st_size for path in sorted(arguments.out.rglob("*")) if path.is_file()}
    for path, size in sizes.items():
        print(f"{size:>12,}  {path.relative_to(arguments.out)}")
    print(f"{sum(sizes.values()):>12,}  bytes in total")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", type=Path, default=Path("digits/bundle"), help="bundle written by digits.py")
    parser.add_argument(
        "--text", type=Path, default=Path("bundles/decoder"), help="bundle of make_bundles.py or character_lm.py"
    )
    parser.add_argument(
        "--node-modules", type=Path, default=HERE / "node_modules", help="directory of the npm packages"
    )
    parser.add_argument("--out", type=Path, default=Path("site"), help="output directory; an existing page is replaced")
    return parser.parse_args()


def build(digits: Path, text: Path, node_modules: Path, out: Path) -> None:
    """Builds the page in a temporary folder and moves it to `out` when it is complete.

    Raises:
        ExportError: invalid bundle, or a bundle of another model type.
        OSError: onnxruntime-web is not installed, or the folder contains other files than a page.
    """
    if out.exists() and not (out / WORKER).is_file():
        raise OSError(f"'{out}' holds something else: not replacing it")
    work = out.with_name(f".{out.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    try:
        shutil.copytree(HERE / "page", work)
        copy(HERE.parent / "deploy" / "js_common" / "byte_pair.js", work / "byte_pair.js")
        runtime = node_modules / "onnxruntime-web" / "dist"
        for name in RUNTIME:
            copy(runtime / name, work / "vendor" / name)
        pack(runtime / BINARY, work / "vendor" / BINARY)
        records = {"digits": digits_record(digits, work), "text": text_record(text, work)}
        (work / "models.json").write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
        fill_worker(work)
        shutil.rmtree(out, ignore_errors=True)
        work.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def digits_record(bundle: Path, work: Path) -> dict[str, Any]:
    """Returns the description of the digits model for the page."""
    path, (inputs, outputs), labels = opened(bundle, "serve")
    shapes = {spec.name: spec.shape[1:] for spec in (*inputs, *outputs)}
    if shapes.get("images") != (8, 8, 1) or not {"logits", "attention", "distance"} <= shapes.keys():
        raise ExportError(f"'{bundle}' was not written by digits.py: it has {shapes}")
    names = {"input": "images", **{name: labels[name] for name in ("logits", "attention", "distance")}}
    largest = read_manifest(bundle).metadata.get("largest_distance")
    if not isinstance(largest, float):
        raise ExportError(f"'{bundle}' was not written by digits.py: its metadata has no largest_distance")
    return {**copied(path, work, "digits"), "names": names, "largestDistance": largest}


def text_record(bundle: Path, work: Path) -> dict[str, Any]:
    """Returns the description of the language model for the page."""
    path, (inputs, _), names = opened(bundle, "decode")
    manifest = read_manifest(bundle)
    generation = manifest.generation
    if generation is None:
        raise ExportError(f"'{bundle}' is not that of a language model")
    length, ends = generation["max_length"], generation["end_id"]
    if length is None:
        raise ExportError(f"'{bundle}' has no maximum length")
    cache = []
    fixed: dict[str | None, int] = {"batch": 1, "cache_length": length}
    for spec in inputs:
        if spec.name not in ("token_ids", "cache_index"):
            sizes = zip(spec.axes, spec.shape, strict=True)
            shape = [fixed.get(axis, size) for axis, size in sizes]
            cache.append({"input": spec.name, "output": names[spec.name], "shape": shape})
    record = {"maxLength": length, "logits": names["logits"], "cache": cache}
    record |= {"ends": [each for each in np.ravel(ends).tolist() if each is not None]}
    return {**copied(path, work, "text"), **record, "tokenizer": tokenizer_record(bundle, manifest)}


def tokenizer_record(bundle: Path, manifest: Manifest) -> dict[str, Any]:
    """Returns what the page makes its tokenizer of: characters and their ids, or the files of byte-level BPE."""
    tokenizer = read_tokenizer(bundle, manifest)
    if hasattr(tokenizer, "characters"):
        characters = [[letter, int(np.ravel(tokenizer.encode(letter))[0])] for letter in tokenizer.characters]
        return {"characters": characters, "unknown": int(np.ravel(tokenizer.encode("\ue000"))[0])}
    if tokenizer is None or manifest.tokenizer is None or getattr(tokenizer, "kind", None) != "byte_pair":
        raise ExportError(f"'{bundle}' has neither a tokenizer of characters nor one of byte-level BPE")
    folder = bundle / manifest.tokenizer.path
    config, file = (json.loads((folder / name).read_text()) for name in ("tokenizer_config.json", "tokenizer.json"))
    return {"config": config, "file": file}


def opened(
    bundle: Path, signature: str
) -> tuple[Path, tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]], Mapping[str, str]]:
    """Returns path and specs of a signature, and the names of its outputs in the file, after checking hashes."""
    manifest = read_manifest(bundle)
    path = manifest.path(bundle, "onnx", signature)
    check_hashes(bundle, manifest, files_of(manifest, "onnx"))
    return path, manifest.signature(signature), file_names(manifest, "onnx", signature).outputs


def copied(path: Path, work: Path, folder: str) -> dict[str, Any]:
    """Compresses an ONNX file and its weights into a folder of the page."""
    target, weights = f"models/{folder}", weight_files(path)
    for name in (path.name, *weights):
        pack(path.parent / name, work / target / name)
    return {"file": f"{target}/{path.name}", "weights": [f"{target}/{name}" for name in weights]}


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def pack(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Without a timestamp, so that the output is reproducible.
    target.with_name(target.name + PACKED).write_bytes(gzip.compress(source.read_bytes(), 9, mtime=0))


def fill_worker(work: Path) -> None:
    """Writes the list of files and their fingerprint, the cache name, into the service worker."""
    paths = sorted(path for path in work.rglob("*") if path.is_file() and path.name != WORKER)
    names = ["./", *(path.relative_to(work).as_posix() for path in paths)]
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)).hexdigest()
    text = (work / WORKER).read_text(encoding="utf-8")
    text = text.replace("FINGERPRINT", digest[:16]).replace("const FILES = [];", f"const FILES = {json.dumps(names)};")
    (work / WORKER).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
