"""One step of LoRA on a language model against peft and transformers: time and memory, a process for each.

python benchmarks/fine_tune.py --checkpoint DIR                         # a Hugging Face folder of a causal language model
python benchmarks/fine_tune.py --checkpoint DIR --batch-size 2 --length 256 --recompute ours --rounds 5

Both train the same adapters on the same tokens in float32: rows of `--length` tokens, the last third of which are answers.
The rivals run one after the other, each once for the times and once for the memory, with an allocator that returns freed
memory at once. On a machine with other load, compare CPU time. Memory is the peak of a process during its steps minus its
memory before the checkpoint was read; what the C library holds and nobody uses is returned before.
`--peft DIR` is a folder with peft, if it is not installed.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy as np
from long_worker import forget_peak, memory, release_free_memory
from measure import Table, limit_training_threads, versions
from training_worker import ALLOCATOR

MODULES = {
    "attention": (["q_proj", "k_proj", "v_proj", "o_proj"], r"/(query|key|value|attention_output)$"),
    "all": (
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        r"/(query|key|value|attention_output|gate|hidden|output)$",
    ),
}
TRACED = 2  # Steps before the first that counts.


def batch(options):
    """Returns token ids and labels `(B, T)`: labels are the same tokens, or -100 for those of questions."""
    ids = np.random.default_rng(0).integers(3, options.vocabulary, (options.batch_size, options.length)).astype("int32")
    return ids, np.where(np.arange(options.length) < options.length * 2 // 3, -100, ids)


def ours(options):
    """Returns the memory before the model, and a function that makes one step and returns the loss."""

    from keras_transformer import training
    from keras_transformer.checkpoints import from_huggingface

    limit_training_threads(options.threads)
    first = memory("VmRSS")
    model = from_huggingface(options.checkpoint, verbose=0)
    training.add_lora(model, options.rank, 2 * options.rank, layers=MODULES[options.modules][1])
    if options.recompute != "none":
        training.recompute_blocks(model)
    trainer = training.NextTokenTrainer(model, packed=False)
    trainer.compile(training.FusedAdamW(1e-4, weight_decay=0.0), jit_compile=options.jit_compile)
    ids, labels = batch(options)
    inputs = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
    following = np.pad(labels[:, 1:], ((0, 0), (0, 1)), constant_values=-100)
    return first, lambda: float(trainer.train_on_batch(inputs, following)[0])


def peft(options):
    """The same of peft and transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    sys.path += [options.peft] if options.peft else []
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(options.threads)
    first = memory("VmRSS")
    model = AutoModelForCausalLM.from_pretrained(options.checkpoint, dtype=torch.float32)
    settings = {"r": options.rank, "lora_alpha": 2 * options.rank, "target_modules": MODULES[options.modules][0]}
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings)).train()
    if options.recompute == "both":
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4, weight_decay=0.0)
    ids, labels = (torch.tensor(each, dtype=torch.long) for each in batch(options))

    def step():
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return first, step


RIVALS = {"ours": ours, "peft": peft}


def work(options):
    """Measures one rival and prints the result as JSON."""
    first, step = RIVALS[options.worker](options)
    start = time.perf_counter()
    losses = [step()]
    found = {"first_step_s": round(time.perf_counter() - start, 2)}
    losses += [step() for _ in range(TRACED - 1)]
    release_free_memory()
    forget_peak()
    times = []
    for _ in range(options.rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        losses.append(step())
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    found |= {
        "step_s": round(statistics.median(wall for wall, _ in times), 3),
        "cpu_s": round(statistics.median(cpu for _, cpu in times), 3),
        "peak_mb": round(memory("VmHWM") - first),
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
    }
    print(json.dumps(found), flush=True)


def _run(command, environment):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--checkpoint", required=True, help="folder of a causal language model of Llama's kind")
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="steps that count")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--modules", choices=MODULES, default="all")
    help = "who computes the activations of every block again in the backward pass"
    parser.add_argument("--recompute", choices=("none", "ours", "both"), default="none", help=help)
    parser.add_argument("--jit-compile", action="store_true", help="ours with XLA")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=1000, help="tokens are drawn from its first ids")
    parser.add_argument("--peft", help="folder with peft and accelerate")
    parser.add_argument("--worker", choices=RIVALS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.worker:
        work(options)
        return
    packages = versions("keras-transformer", "keras", "tensorflow", "torch", "transformers", "peft")
    if options.peft:
        packages["peft"] = next(
            path.name.split("-")[1] for path in os.scandir(options.peft) if path.name.startswith("peft-")
        )
    title = f"A step of LoRA, rank {options.rank}, {options.batch_size} x {options.length} tokens, {options.threads} threads"
    table = Table(f"{title}, recomputed: {options.recompute}", packages)
    found = {}
    for name in RIVALS:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", name]
        found[name] = _run(command, {}) | {"peak_mb": _run(command, ALLOCATOR)["peak_mb"]}
        table.add(rival=name, **found[name])
    keys = ("step_s", "cpu_s", "peak_mb")
    table.add(rival="ratio", **{key: round(found["ours"][key] / found["peft"][key], 3) for key in keys})
    table.note("ratio: ours / peft. Below 1 ours needs less. Losses differ after the first step: A is drawn at random.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
