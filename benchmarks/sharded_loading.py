"""Memory of processes that load a checkpoint together, each its part: peak of a process relative to its part.

    python benchmarks/sharded_loading.py                      # a checkpoint of 400 MB, four processes
    python benchmarks/sharded_loading.py --layers 2 --width 64 --processes 2

A random Llama is written as a Hugging Face checkpoint. Each process has one device and a part of every weight, as with
`training.distributed(..., fully_sharded=True)`. Memory is anonymous memory: pages of the file that the system caches do not
count, and the system takes them back when it needs memory.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from measure import Table, arguments, versions

_WORDS = 16_000


def write_checkpoint(folder, layers, width):
    """Writes a random Llama; returns the bytes of its weights."""
    import numpy as np
    from safetensors.numpy import save_file

    heads = max(4, width // 64)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "vocab_size": _WORDS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "max_position_embeddings": 2048,
    }
    block = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (width // 2, width),
        "self_attn.v_proj": (width // 2, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (4 * width, width),
        "mlp.up_proj": (4 * width, width),
        "mlp.down_proj": (width, 4 * width),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    shapes = {"lm_head": (_WORDS, width), "model.embed_tokens": (_WORDS, width), "model.norm": (width,)}
    shapes |= {f"model.layers.{index}.{name}": shape for index in range(layers) for name, shape in block.items()}
    drawn = np.random.default_rng(0)
    tensors = {f"{name}.weight": drawn.standard_normal(shape, "float32") for name, shape in shapes.items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return sum(tensor.nbytes for tensor in tensors.values())


def anonymous_memory():
    """Bytes of this process that are no pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("The system does not tell the anonymous memory of a process.")


class Peak(threading.Thread):
    """The largest memory of this process, looked at every millisecond."""

    def __init__(self):
        super().__init__(daemon=True)
        self.largest, self.ended = anonymous_memory(), False

    def run(self):
        while not self.ended:
            self.largest = max(self.largest, anonymous_memory())
            time.sleep(0.001)


def load(folder, address, count, index):
    """Loads this process's part and prints its memory."""
    import jax

    from keras_transformer import checkpoints, training

    jax.distributed.initialize(address, count, index)

    def loaded(name):
        return training.distributed(
            lambda: checkpoints.from_huggingface(Path(folder) / name, verbose=0), fully_sharded=True
        )

    loaded("small")  # Imports, and what is compiled.
    before, peak = anonymous_memory(), Peak()
    peak.start()
    start = time.perf_counter()
    model = loaded("large")
    seconds = time.perf_counter() - start
    peak.ended = True
    part = sum(shard.data.nbytes for weight in model.weights for shard in weight.value.addressable_shards)
    print(json.dumps({"part": part, "peak": peak.largest - before, "seconds": seconds}), flush=True)


def measure(options):
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder) / "small", 1, 64)
        size = write_checkpoint(Path(folder) / "large", options.layers, options.width)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        workers = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", folder, address, str(options.processes), str(index)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for index in range(options.processes)
        ]
        outputs = [worker.communicate()[0] for worker in workers]
    return size, [json.loads(output.splitlines()[-1]) for output in outputs]


def main():
    if sys.argv[1:2] == ["--worker"]:
        folder, address, count, index = sys.argv[2:]
        load(folder, address, int(count), int(index))
        return
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    if options.tiny:
        options.layers, options.width, options.processes = 1, 64, 2
    size, found = measure(options)
    table = Table(
        f"Loading {size / 1e6:.0f} MB in {options.processes} processes",
        versions("keras-transformer", "keras", "jax", "safetensors"),
    )
    for index, each in enumerate(found):
        table.add(
            process=index,
            part_mb=round(each["part"] / 1e6, 1),
            peak_mb=round(each["peak"] / 1e6, 1),
            peak_of_part=round(each["peak"] / each["part"], 2),
            seconds=round(each["seconds"], 2),
        )
    table.finish(options.json)


if __name__ == "__main__":
    main()
