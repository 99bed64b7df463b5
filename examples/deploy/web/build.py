"""Puts the page, the runtimes and the bundles into one folder, which any static file server can serve.

npm install                                                    # in examples/deploy/web
python examples/deploy/web/build.py --bundles bundles --out site
python -m http.server --directory site                         # and open http://localhost:8000
"""

import argparse
import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent
PAGE = ("index.html", "main.js", "style.css")
ORT = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
BUNDLES = ("classifier", "decoder", "decoder_gpu")
# LiteRT.js loads one of these, by what the browser can do.
LITERT = ("litert_wasm_internal", "litert_wasm_compat_internal", "litert_wasm_jspi_internal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, default=Path("bundles"), help="folder written by make_bundles.py")
    parser.add_argument("--node-modules", type=Path, default=HERE / "node_modules", help="folder of the npm packages")
    parser.add_argument("--out", type=Path, default=Path("site"), help="folder to write; it must not exist")
    arguments = parser.parse_args()
    if missing := [path for path in needed(arguments.bundles, arguments.node_modules) if not path.exists()]:
        parser.error(f"there is no {', '.join(map(str, missing))}: run make_bundles.py and npm install first")
    build(arguments.bundles, arguments.node_modules, arguments.out)


def needed(bundles: Path, modules: Path) -> list[Path]:
    """What must be there before anything is written: the page has an image of a digit, and three bundles."""
    records = [bundles / name / "manifest.json" for name in BUNDLES]
    return [bundles / "digit.pgm", *records, modules / "onnxruntime-web" / "dist", modules / "@litertjs" / "core"]


def build(bundles: Path, modules: Path, out: Path) -> None:
    """Copies everything that the page loads to `out`."""
    out.mkdir(parents=True)
    for name in PAGE:
        shutil.copy(HERE / name, out)
    shutil.copytree(HERE.parent / "js_common", out / "js_common")
    copy(modules / "onnxruntime-web" / "dist", out / "vendor" / "onnxruntime", ORT)
    litert = modules / "@litertjs" / "core"
    copy(litert / "dist", out / "vendor" / "litert", ["index.js"])
    copy(
        litert / "wasm", out / "vendor" / "litert" / "wasm", [name + end for name in LITERT for end in (".js", ".wasm")]
    )
    copy(modules / "@litertjs" / "wasm-utils" / "dist", out / "vendor" / "wasm_utils", ["index.js"])
    copy(bundles, out / "bundles", ["digit.pgm"])
    for name in BUNDLES:
        copy_bundle(bundles / name, out / "bundles" / name)


def copy_bundle(bundle: Path, out: Path) -> None:
    """Copies the files that the page needs: not a SavedModel, nor the inputs and the report of the proof."""
    manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
    left_out = ("saved_model", "probes.npz", "report.html")
    copy(bundle, out, ["manifest.json", *(name for name in manifest["files"] if not name.startswith(left_out))])


def copy(source: Path, target: Path, names: tuple[str, ...] | list[str]) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, target / name)


if __name__ == "__main__":
    main()
