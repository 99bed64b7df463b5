"""Runs ONNX files on the GPU of a headless Chromium, by onnxruntime-web.

The page is served from this process. It loads the file, runs it, and posts what it found.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.onnx.weights.files import FILE as WEIGHTS
from keras_transformer.export.targets.target import Arrays, NoAcceleratorError
from keras_transformer.utils.types import JsonObject

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_FLAGS_TEXT = """
--headless=new --no-sandbox --no-first-run --disable-sync --disable-background-networking --enable-unsafe-webgpu
--use-webgpu-adapter=swiftshader --enable-features=Vulkan
"""
_SECONDS = 900
_MODULE = "ort.webgpu.bundle.min.mjs"
_PLACED = re.compile(r"(?:Node\(s\)|All nodes) placed on \[(?P<provider>\w+)\]\. Number of nodes: (?P<count>\d+)")
_NODE = re.compile(r"\]\s{2,}(?P<op>\w+) \((?P<name>[^)]*)\)\s*$")
_PAGE = """<!doctype html><script type="module">
const said = [];
for (const name of ["log", "info", "warn", "error", "debug"]) console[name] = (...words) => said.push(words.join(" "));
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const text = (array) => {
  const all = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  let found = "";
  for (let start = 0; start < all.length; start += 8192) found += String.fromCharCode(...all.subarray(start, start + 8192));
  return btoa(found);
};
const kinds = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array };
const tensor = (ort, each) => new ort.Tensor(each.kind, new kinds[each.kind](bytes(each.data).buffer), each.shape);
const post = (found) => fetch("/found", { method: "POST", body: JSON.stringify({ ...found, said }) });
try {
  const job = await (await fetch("/job.json")).json();
  if (!(await navigator.gpu?.requestAdapter())) {
    await post({ missing: "this Chromium has no WebGPU" });
  } else {
    const ort = await import("/ort/MODULE");
    ort.env.wasm.wasmPaths = "/ort/";
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = "verbose";
    const externalData = job.weights ? [{ path: job.weights, data: "/" + job.weights }] : [];
    const session = await ort.InferenceSession.create("/model.onnx", {
      executionProviders: ["webgpu"], logSeverityLevel: 0, externalData });
    const outputs = [];
    for (const given of job.cases) {
      const names = session.inputNames.filter((name) => name in given);
      const found = await session.run(Object.fromEntries(names.map((name) => [name, tensor(ort, given[name])])));
      outputs.push(Object.fromEntries(Object.entries(found).map(([name, each]) =>
        [name, { kind: each.type, shape: each.dims, data: text(each.data) }])));
    }
    await post({ outputs });
  }
} catch (error) {
  await post({ error: String(error) });
}
</script>"""


def run_in_browser(path: pathlib.Path, cases: Sequence[Arrays]) -> tuple[dict[str, list[str]], list[Any]]:
    """Runs a file, for each dict of inputs.

    Args:
        path: path of the ONNX file.
        cases: sequence of dicts of input arrays.

    Returns:
        `(placed, outputs)`: dict of execution provider to the operators of its nodes, and a list of dicts of arrays.

    Raises:
        NoAcceleratorError: there is no Chromium, no onnxruntime-web, or no WebGPU.
        RuntimeError: the file does not run.
    """
    lacking = missing()
    if lacking:
        raise NoAcceleratorError(lacking)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "index.html").write_text(_PAGE.replace("MODULE", _MODULE), encoding="utf-8")
        shutil.copy(path, folder / "model.onnx")
        (folder / "ort").symlink_to(_onnxruntime_web() / "dist")
        weights = path.with_name(WEIGHTS)
        if weights.is_file():
            shutil.copy(weights, folder / WEIGHTS)
        job = {"weights": WEIGHTS if weights.is_file() else None, "cases": [_packed(each) for each in cases]}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        found = _visited(folder)
    if "missing" in found:
        raise NoAcceleratorError(found["missing"])
    if "error" in found:
        raise RuntimeError(found["error"])
    return placements(found["said"]), [_unpacked(each) for each in found["outputs"]]


def placements(said: Sequence[str]) -> dict[str, list[str]]:
    """Dict of execution provider to the operators of its nodes, from the log of a session.

    Example:

    >>> placements(["[V:ort:] Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1", "[V:ort:]   Cast (a)"])
    {'CPUExecutionProvider': ['Cast']}
    """
    found: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    provider = None
    for line in "\n".join(said).splitlines():
        match = _PLACED.search(line)
        node = _NODE.search(line)
        if match:
            provider = match["provider"]
            counts[provider] = int(match["count"])
            found.setdefault(provider, [])
        elif provider and node and len(found[provider]) < counts[provider]:
            found[provider].append(node["op"])
    return {key: [*ops, *["?"] * (counts[key] - len(ops))] for key, ops in found.items()}


def missing() -> str | None:
    """What is missing, or None."""
    if _chromium() is None:
        return "there is no Chromium"
    return None if _onnxruntime_web() else "there is no onnxruntime-web"


def versions() -> str:
    """The versions of onnxruntime-web and Chromium."""
    record = json.loads((_onnxruntime_web() / "package.json").read_text(encoding="utf-8"))
    words = subprocess.run([str(_chromium()), "--version"], capture_output=True, text=True, check=False).stdout.split()
    number = next((each for each in words if each[:1].isdigit()), "")
    return f"onnxruntime-web {record['version']} in Chromium {number}".strip()


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, _CHROMIUM)), None)


def _onnxruntime_web() -> Any:
    """The folder of onnxruntime-web: in `KERAS_TRANSFORMER_NODE_MODULES`, or in `node_modules` here or above; or None."""
    given = os.environ.get("KERAS_TRANSFORMER_NODE_MODULES")
    here = pathlib.Path.cwd()
    places = [pathlib.Path(given)] if given else [each / "node_modules" for each in (here, *here.parents)]
    return next((each / "onnxruntime-web" for each in places if (each / "onnxruntime-web").is_dir()), None)


def _packed(arrays: Arrays) -> JsonObject:
    return {
        name: {"kind": str(each.dtype), "shape": list(each.shape), "data": base64.b64encode(each.tobytes()).decode()}
        for name, each in arrays.items()
    }


def _unpacked(results: JsonObject) -> dict[str, np.ndarray]:
    return {
        name: np.frombuffer(base64.b64decode(each["data"]), each["kind"]).reshape(each["shape"])
        for name, each in results.items()
    }


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and puts what the page posts into a queue."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def __init__(self, *given: Any, found: queue.Queue[JsonObject], **named: Any) -> None:
        self._found = found
        super().__init__(*given, **named)

    def do_POST(self) -> None:
        self._found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def _visited(folder: pathlib.Path) -> JsonObject:
    """What the page of a folder posts."""
    found: queue.Queue[JsonObject] = queue.Queue()
    with _served(folder, found) as address, tempfile.TemporaryDirectory() as profile:
        command = [str(_chromium()), *_FLAGS_TEXT.split(), f"--user-data-dir={profile}", address]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                return found.get(timeout=_SECONDS)
            except queue.Empty:
                return {"error": f"the page said nothing within {_SECONDS} s"}
            finally:
                browser.terminate()


@contextlib.contextmanager
def _served(folder: pathlib.Path, found: queue.Queue[JsonObject]) -> Iterator[str]:
    handler = functools.partial(_Handler, directory=str(folder), found=found)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
