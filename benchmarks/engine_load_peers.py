"""llama.cpp and vLLM under the load of `engine_load.py`, each in a process of its own, with the weights in float32."""

import json
import pathlib
import subprocess
import tempfile
from typing import NamedTuple

from keras_transformer.checkpoints import to_gguf, to_huggingface

_HERE = pathlib.Path(__file__).parent


class Course(NamedTuple):
    """Requests that arrived at one rate: seconds until the last answer, and seconds and tokens of each request."""

    took: float
    seconds: list
    tokens: list


def _llama(options, model, folder):
    """The command of llama.cpp and what its task needs more."""
    file = folder / "model.gguf"
    to_gguf(model, file, quantize="F32", verbose=0)
    modules = str(pathlib.Path(options.llama_cpp).resolve())
    return ["node", str(_HERE / "engine_load_llama.mjs")], {"model": str(file), "modules": modules}


def _vllm(options, model, folder):
    """The command of vLLM and what its task needs more."""
    to_huggingface(model, folder / "checkpoint", verbose=0)
    return [options.vllm, str(_HERE / "engine_load_vllm.py")], {"model": str(folder / "checkpoint")}


def courses_of_peers(options, model, requests, arrivals):
    """Yields the name of each peer that the options ask for, and its `Course` for each list of arrivals."""
    length = max(len(prompt) + new for prompt, new in requests)
    task = {
        "requests": [{"prompt": prompt, "count": new} for prompt, new in requests],
        "arrivals": [list(each) for each in arrivals],
        "threads": options.threads,
        "rows": options.rows,
        "length": -(-length // 32) * 32,
    }
    for peer in filter(None, (options.llama_cpp and _llama, options.vllm and _vllm)):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            command, more = peer(options, model, folder)
            written, answered = folder / "task.json", folder / "answer.json"
            written.write_text(json.dumps({**task, **more, "answer": str(answered)}))
            subprocess.run([*command, str(written)], check=True, stdout=subprocess.DEVNULL)
            answer = json.loads(answered.read_text())
        yield answer["name"], [_course(each) for each in answer["courses"]]


def _course(content):
    answers = content["answers"]
    return Course(content["took"], [each["seconds"] for each in answers], [each["tokens"] for each in answers])
