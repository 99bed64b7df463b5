"""Trains a draft head on texts that a language model writes itself, and shows how much faster it then writes.

    python examples/draft_head.py --checkpoint DIR --text FILE [FILE ...]    # a Hugging Face folder
    python examples/draft_head.py --gguf FILE --text FILE [FILE ...]         # a GGUF file
    python examples/draft_head.py --checkpoint DIR --text FILE --bundle DIR  # texts are written by an exported bundle
    python examples/draft_head.py --checkpoint DIR --text FILE --quick       # smoke test: a few steps

The model continues pieces of the texts; the head learns to say which tokens it chooses next, from its hidden states. With
`generate(..., sampler=Speculative(head))` the model then reads several proposed tokens at a time and writes the same text;
quantized files round one token and several differently, so that their texts can part where two tokens are nearly equal.
The last tenth of the files is held out for the comparison. The script writes `--out`, a file of a few megabytes.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import checkpoints, export, generation, tasks, training


def main() -> None:
    arguments = parse_arguments()
    keras.utils.set_random_seed(arguments.seed)
    model = load(arguments)
    writer = export.load(arguments.bundle, arguments.backend) if arguments.bundle else model
    prompts, held_out = read_prompts(arguments, model.tokenizer)
    texts = write(writer, prompts, arguments)
    print(f"{texts.size} tokens in texts of the model")

    inputs, choices = training.draft_examples(model, texts, batch_size=4)
    trainer = training.DraftHeadTrainer(
        most_frequent(choices, arguments.tokens), inputs["hidden_states"].shape[-1], arguments.width, arguments.drafts
    )
    steps = arguments.epochs * -(-len(texts) // arguments.batch_size)
    schedule = training.WarmupCosine(arguments.learning_rate, warmup_steps=steps // 20, total_steps=steps)
    trainer.compile(keras.optimizers.AdamW(schedule, weight_decay=0.1))
    trainer.fit(
        inputs,
        choices,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_split=0.05,
        verbose=2,
    )
    head = trainer.draft_head()
    head.save(arguments.out)
    compare(writer, held_out, generation.Speculative(head, arguments.drafts), arguments)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", help="folder or repository of Hugging Face")
    source.add_argument("--gguf", type=Path, help="a GGUF file")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="texts of the kind that it is to continue")
    parser.add_argument("--bundle", type=Path, help="a bundle of the model, which writes the texts")
    parser.add_argument("--backend", default="onnx", help="runtime of the bundle")
    parser.add_argument("--out", type=Path, default=Path("draft_head.safetensors"))
    parser.add_argument("--texts", type=int, default=400, help="texts to learn from")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--new", type=int, default=192, help="tokens that the model adds")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens that the head knows")
    parser.add_argument("--width", type=int, default=256, help="width of the head")
    parser.add_argument("--drafts", type=int, default=4, help="tokens proposed at a time")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="smoke test: a few steps")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.texts, arguments.prompt, arguments.new, arguments.epochs, arguments.width = 4, 4, 12, 1, 16
    return arguments


def load(arguments: argparse.Namespace) -> tasks.LanguageModel:
    if arguments.gguf:
        return checkpoints.from_gguf(arguments.gguf)
    return checkpoints.from_huggingface(arguments.checkpoint)


def read_prompts(arguments: argparse.Namespace, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the texts: those to learn from, and eight of the part that is held out."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in arguments.text)
    tokens = np.concatenate([np.array(tokenizer.encode(text), "int32") for text in texts])
    end, random = len(tokens) * 9 // 10, np.random.default_rng(arguments.seed)

    def pieces(first: int, last: int, count: int) -> np.ndarray:
        starts = random.integers(first, last - arguments.prompt, count)
        return np.stack([tokens[start : start + arguments.prompt] for start in starts])

    return pieces(0, end, arguments.texts), pieces(end, len(tokens), 8)


def write(writer: Any, prompts: np.ndarray, arguments: argparse.Namespace) -> np.ndarray:
    """The prompts and what the model adds to them, `(rows, T)`; texts that end early are left out."""
    options = {"max_new_tokens": arguments.new, "batch_size": 16}
    added = writer.generate(list(prompts), **options)
    whole = [[*prompt, *text] for prompt, text in zip(prompts, added, strict=True) if len(text) == arguments.new]
    return np.array(whole, "int32")


def most_frequent(choices: np.ndarray, count: int) -> np.ndarray:
    found, counts = np.unique(choices, return_counts=True)
    return found[np.argsort(-counts, kind="stable")[:count]]


def compare(writer: Any, prompts: np.ndarray, sampler: generation.Speculative, arguments: argparse.Namespace) -> None:
    """Prints seconds with and without the head, one text at a time."""
    found: dict[str, list[Any]] = {"alone": [], "with the head": []}
    seconds = dict.fromkeys(found, 0.0)
    accepted = []
    for number, prompt in enumerate([prompts[0], *prompts]):
        for name, options in {"alone": {}, "with the head": {"sampler": sampler}}.items():
            start = time.perf_counter()
            text = writer.generate(prompt, max_new_tokens=arguments.new, **options)
            if number:  # The first text warms up.
                seconds[name] += time.perf_counter() - start
                found[name].append(text)
        accepted.append(sampler.accepted_per_step)
    equal = sum(map(np.array_equal, *found.values()))
    ratio = seconds["alone"] / seconds["with the head"]
    mean = np.mean([each for each in accepted if each is not None])
    print(f"{equal} of {len(prompts)} texts equal; {mean:.2f} proposals accepted in a step; {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
