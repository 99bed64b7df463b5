"""Fine-tunes a chat model with LoRA on dialogues, then merges, exports and talks to it.

    python examples/fine_tune_llm.py --checkpoint DIR --data chats.jsonl   # a Hugging Face folder with a chat template
    python examples/fine_tune_llm.py --gguf FILE --data chats.jsonl        # a GGUF file
    python examples/fine_tune_llm.py --checkpoint DIR                      # entities in tweets as JSON; downloads 2 MB
    python examples/fine_tune_llm.py --checkpoint DIR --data-dir WNUT17    # the same from a folder
    python examples/fine_tune_llm.py --checkpoint DIR --quick              # smoke test: a few steps

Each line of `--data` is a dialogue: {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content":
"..."}]}. The last tenth of them is held out, unless `--test` names another file.

Dialogues are packed into rows of `--length` tokens, and none sees another. The loss is over the answers of the assistant
only. The script prints the loss on held-out answers and some answers before and after training, then those of the exported
bundle in each runtime. It writes to `--out`: `adapter.safetensors`, `peft/` (for Hugging Face's peft), `history.json`,
`curve.png`, `answers.json` and `bundle/`.

`--recompute 1` recomputes activations in the backward pass: less memory, a third more time. `--dtype bfloat16` halves the
memory of the weights; it is faster on hardware with bfloat16 units only.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_transformer import checkpoints, data, export, plots, tasks, training

ADDRESS = "https://raw.githubusercontent.com/leondz/emerging_entities_17/e52a2d2a71ac1a051ca2d532eef28653c5c02603/"
FILES = {
    "wnut17train.conll": "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
    "emerging.dev.conll": "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
}
INSTRUCTION = "List the named entities as JSON."
LAYERS = r"/(query|key|value|attention_output|gate|hidden|output)$"
NUM_SHOWN = 4


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    train_chats, test_chats = read_chats(arguments)
    model = load(arguments)
    batches = pack(train_chats, model, arguments, shuffle=True)
    held_out = pack(test_chats[: arguments.held_out], model, arguments, shuffle=False)
    print(f"{len(train_chats)} dialogues in {len(batches)} batches, {batches.efficiency:.0%} of their tokens real")

    training.add_lora(model, arguments.rank, 2 * arguments.rank, layers=LAYERS)
    if arguments.recompute:
        training.recompute_blocks(model, arguments.recompute)
    trainer = training.NextTokenTrainer(model)
    trainer.compile(optimizer(arguments), jit_compile=False)

    # A new adapter changes nothing: this is the checkpoint itself.
    before = trainer.evaluate(held_out, verbose=0, return_dict=True)["token_loss"]
    questions = [each["messages"] for each in test_chats[:NUM_SHOWN]]
    answers = {"before": [answer(model, messages) for messages in questions]}
    print(f"held-out loss before: {before:.3f} nats a token of the answers", flush=True)
    history = train(trainer, batches, held_out, before, arguments)
    print(f"held-out loss after: {history['val_loss'][-1]:.3f}", flush=True)

    training.save_lora(model, arguments.out / "adapter.safetensors")
    checkpoints.to_peft(model, arguments.out / "peft")
    training.merge_lora(model)
    answers["after"] = [answer(model, messages) for messages in questions]
    bundle = arguments.out / "bundle"
    print(export.export(model, bundle, formats=arguments.formats))
    for backend in arguments.formats:
        loaded = export.load(bundle, backend)
        answers[backend] = [answer(loaded, messages) for messages in questions]
    show(questions, answers)
    (arguments.out / "answers.json").write_text(json.dumps({"questions": questions, **answers}, indent=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", help="folder or repository of Hugging Face, with a chat template")
    source.add_argument("--gguf", type=Path, help="a GGUF file with a chat template")
    parser.add_argument("--data", type=Path, help="JSON Lines of dialogues")
    parser.add_argument("--test", type=Path, help="held-out dialogues; requires --data")
    parser.add_argument("--data-dir", type=Path, help=f"folder of {' and '.join(FILES)}; default: download them")
    parser.add_argument("--out", type=Path, default=Path("fine_tuned"), help="output directory")
    parser.add_argument("--updates", type=int, default=60, help="updates of the weights")
    parser.add_argument("--reports", type=int, default=4, help="how often the held-out loss is computed meanwhile")
    parser.add_argument("--held-out", type=int, default=64, help="dialogues for the held-out loss")
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--batch-size", type=int, default=1, help="rows of a batch")
    parser.add_argument("--accumulate", type=int, default=2, help="batches of an update")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--recompute", type=int, default=0, help="1: recompute all blocks, 2: every second, 0: none")
    parser.add_argument("--dtype", help='of the weights, such as "bfloat16"; default: float32')
    parser.add_argument("--formats", nargs="+", default=["onnx"], choices=["saved_model", "tflite", "onnx"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="smoke test: a few steps")
    arguments = parser.parse_args()
    if arguments.test and not arguments.data:
        parser.error("--test requires --data")
    if arguments.quick:
        arguments.updates, arguments.reports, arguments.held_out = 2, 1, 4
    return arguments


def load(arguments: argparse.Namespace) -> tasks.LanguageModel:
    if arguments.gguf:
        return checkpoints.from_gguf(arguments.gguf, dtype=arguments.dtype)
    return checkpoints.from_huggingface(arguments.checkpoint, dtype=arguments.dtype)


def read_chats(arguments: argparse.Namespace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the dialogues to train on and those held out, dicts of "messages"."""
    if arguments.data:
        chats = list(data.read_json_lines(arguments.data))
        if arguments.test:
            return chats, list(data.read_json_lines(arguments.test))
        count = max(len(chats) // 10, 1)
        return chats[:-count], chats[-count:]
    train, test = (
        list(entity_chats(arguments.data_dir / name if arguments.data_dir else download(name, digest)))
        for name, digest in FILES.items()
    )
    return train, test


def download(name: str, digest: str) -> Path:
    return Path(keras.utils.get_file(name, ADDRESS + name, cache_subdir="tagging", file_hash=digest))


def entity_chats(path: Path) -> Iterator[dict[str, Any]]:
    """Yields a dialogue for each tweet of WNUT-17 with entities: the answer is their names by kind, as JSON."""
    for sentence in data.read_conll(path):
        found: dict[str, list[str]] = {}
        for label, start, end in data.entity_spans(sentence.columns[0]):
            found.setdefault(label, []).append(" ".join(sentence.tokens[start:end]))
        if found:
            yield {
                "messages": [
                    {"role": "system", "content": INSTRUCTION},
                    {"role": "user", "content": " ".join(sentence.tokens)},
                    {"role": "assistant", "content": json.dumps(found, ensure_ascii=False)},
                ]
            }


def pack(
    chats: list[dict[str, Any]], model: tasks.LanguageModel, arguments: argparse.Namespace, shuffle: bool
) -> data.BatchStream:
    """Returns batches of packed rows, whose labels are the answers."""
    encoded = data.encode_chats(chats, model.tokenizer, max_length=arguments.length + 1, end_id=model.end_id)
    if encoded.dropped:
        print(f"{encoded.dropped} dialogues are longer than {arguments.length} tokens and are left out")
    return data.pack(
        encoded.token_ids,
        arguments.length,
        arguments.batch_size,
        label_masks=encoded.label_masks,
        shuffle=shuffle,
        seed=arguments.seed,
    )


def optimizer(arguments: argparse.Namespace) -> keras.optimizers.Optimizer:
    batches = arguments.updates * arguments.accumulate  # Keras's schedules count batches, not updates.
    schedule = training.WarmupCosine(arguments.learning_rate, warmup_steps=max(batches // 10, 1), total_steps=batches)
    accumulate = arguments.accumulate if arguments.accumulate > 1 else None
    return keras.optimizers.AdamW(
        schedule, weight_decay=0.0, global_clipnorm=1.0, gradient_accumulation_steps=accumulate
    )


def train(
    trainer: training.NextTokenTrainer,
    batches: data.BatchStream,
    held_out: data.BatchStream,
    before: float,
    arguments: argparse.Namespace,
) -> dict[str, list[float]]:
    """Trains, and writes history and curve; returns the losses for each report, the held-out one from before on."""
    steps = arguments.updates * arguments.accumulate // arguments.reports
    found = trainer.fit(
        batches.repeat(),
        steps_per_epoch=steps,
        epochs=arguments.reports,
        validation_data=held_out,
        shuffle=False,
    ).history
    history = {"loss": found["token_loss"], "val_loss": found["val_token_loss"]}
    (arguments.out / "history.json").write_text(json.dumps({**history, "before": before}, indent=1))
    plots.training_curve(history).savefig(arguments.out / "curve.png", dpi=150)
    return history


def answer(model: Any, messages: list[dict[str, str]]) -> str:
    """Returns what a model, or an exported one, answers to a dialogue without its last message."""
    return model.chat(messages[:-1], max_new_tokens=48)


def show(questions: list[list[dict[str, str]]], answers: dict[str, list[str]]) -> None:
    for index, messages in enumerate(questions):
        print(f"\n{messages[-2]['content']}\n  {'wanted':11} {messages[-1]['content']}")
        for name, said in answers.items():
            print(f"  {name:11} {said[index]!r}")


if __name__ == "__main__":
    main()
