"""Trains extractive question answering from scratch on a file in SQuAD's format.

    python examples/question_answering.py --train train-v1.1.json --test dev-v1.1.json     # SQuAD, or the same format
    python examples/question_answering.py --data-dir DIR                                   # DIR/xquad.en.json
    python examples/question_answering.py                                                  # downloads that file
    python examples/question_answering.py --quick                                          # smoke test

Without `--train` and `--test` the script uses the English part of XQuAD, 1,190 questions on 48 articles: three quarters of
the articles for training, the others for testing. This is far too little data for training from scratch; the scores are
hardly above those of answer types guessed from the question.

A long context is processed in overlapping windows; the answer is the best span of all windows. The script prints the loss
by epoch, then exact match and F1 on the test set, computed as in SQuAD's official script, of the Keras model and of the
exported bundle in each runtime. It writes to `--out`: `model.keras`, `tokenizer/`, `history.json`, `curve.png` and
`bundle/`.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import data, export, models, plots, tasks, text, training
from keras_transformer.text.batching import pad_batch

SIZE = models.Size(num_layers=2, hidden_dim=128, num_heads=4, intermediate_dim=256)
QUICK_SIZE = models.Size(num_layers=1, hidden_dim=32, num_heads=2, intermediate_dim=64)
VOCABULARY_SIZE = 8000
WINDOW: dict[str, Any] = {"max_length": 256, "stride": 128}
MAX_ANSWER_LENGTH = 30
DROPOUT = 0.2
LEARNING_RATE = 5e-4
WEIGHT_DECAY = 0.05
TOKENS_PER_BATCH = 4096

DATA_NAME = "xquad.en.json"
DATA_ADDRESS = (
    "https://raw.githubusercontent.com/google-deepmind/xquad/7d30520c717524000f0d9d2f9c10a069acd9d285/" + DATA_NAME
)
DATA_DIGEST = "e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29"


class Question(NamedTuple):
    """A question, its context and its answers, pairs of first character and text."""

    text: str
    context: str
    answers: list[tuple[int, str]]


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    train_questions, test_questions = read_questions(arguments)
    print(f"{len(train_questions)} questions to train on, {len(test_questions)} to test on", flush=True)
    texts = list(dict.fromkeys(part for each in train_questions for part in (each.context, each.text)))
    tokenizer = text.WordPiece.train(texts, VOCABULARY_SIZE)
    backbone = models.Encoder(
        QUICK_SIZE if arguments.quick else SIZE,
        tokenizer.vocabulary_size,
        max_sequence_length=WINDOW["max_length"],
        num_segments=2,
        dropout=DROPOUT,
    )
    model = tasks.SpanAnswerer(backbone, dropout=DROPOUT, name="question_answering")

    history = train(model, tokenizer, train_questions, arguments)
    model.save(arguments.out / "model.keras")
    tokenizer.save(arguments.out / "tokenizer")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    plots.training_curve({"loss": history["loss"]}).savefig(arguments.out / "curve.png", dpi=150)
    evaluate(model, tokenizer, test_questions, arguments.out / "bundle")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, help="a file in SQuAD's format")
    parser.add_argument("--test", type=Path, help="another one; requires --train")
    parser.add_argument("--data-dir", type=Path, help=f"folder of {DATA_NAME}; default: download it")
    parser.add_argument("--out", type=Path, default=Path("question_answering"), help="output directory")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if (arguments.train is None) != (arguments.test is None):
        parser.error("give both --train and --test, or neither")
    if arguments.quick:
        arguments.epochs = 1
    return arguments


def read_questions(arguments: argparse.Namespace) -> list[list[Question]]:
    """Returns two lists of `Question`, for training and for testing."""
    if arguments.train:
        parts = [read_articles(path) for path in (arguments.train, arguments.test)]
    else:
        path = arguments.data_dir / DATA_NAME if arguments.data_dir else download()
        articles = read_articles(path)
        parts = [
            [article for index, article in enumerate(articles) if (index % 4 == 3) == is_test]
            for is_test in (False, True)
        ]
    questions = [[question for article in part for question in article] for part in parts]
    return [part[:50] for part in questions] if arguments.quick else questions


def download() -> Path:
    return Path(keras.utils.get_file(DATA_NAME, DATA_ADDRESS, cache_subdir="xquad", file_hash=DATA_DIGEST))


def read_articles(path: Path) -> list[list[Question]]:
    """Returns a list of `Question` for each article of a file in SQuAD's format (version 1.1)."""
    return [
        [
            Question(
                entry["question"], paragraph["context"], [(a["answer_start"], a["text"]) for a in entry["answers"]]
            )
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]
    ]


def train(
    model: keras.Model, tokenizer: text.WordPiece, questions: list[Question], arguments: argparse.Namespace
) -> dict[str, list[float]]:
    """Trains the model on the first answer of each question; returns the history."""
    windows = [
        window
        for question in questions
        for window in tasks.question_windows(
            tokenizer, question.text, question.context, answer=question.answers[0], **WINDOW
        )
        # Windows without the answer are skipped: every question has an answer.
        if window.answer != (0, 0)
    ]
    stream = data.bucket_batches(
        {name: [getattr(window, name) for window in windows] for name in ("token_ids", "segment_ids")},
        np.array([window.answer for window in windows], "int32"),
        tokens_per_batch=TOKENS_PER_BATCH,
        multiple=16,
        fill=False,
        seed=arguments.seed,
    )
    steps = len(stream) * arguments.epochs
    schedule = training.WarmupCosine(LEARNING_RATE, warmup_steps=steps // 10, total_steps=steps)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0)
    losses = {f"{edge}_logits": training.MaskedCrossentropy() for edge in ("start", "end")}
    model.compile(optimizer, losses, jit_compile=False)
    # One column of the labels per output.
    batches = stream.repeat().map(
        lambda inputs, spans: (inputs, {"start_logits": spans[:, 0], "end_logits": spans[:, 1]})
    )
    start = time.process_time()
    history = model.fit(batches, steps_per_epoch=len(stream), epochs=arguments.epochs, shuffle=False, verbose=2).history
    print(f"trained for {(time.process_time() - start) / 60:.1f} minutes of CPU time", flush=True)
    return history


def evaluate(model: keras.Model, tokenizer: text.WordPiece, questions: list[Question], bundle: Path) -> None:
    """Prints exact match and F1 of the Keras model and of the bundle in each runtime."""
    inference = tf.function(lambda inputs: model(inputs, training=False), reduce_retracing=True)

    def in_keras(inputs):
        return {name: logits.numpy() for name, logits in inference(inputs).items()}

    print(f"test: {score(in_keras, tokenizer, questions)}", flush=True)
    print(export.export(model, bundle))
    for backend in ("saved_model", "tflite", "onnx"):
        print(f"{backend}: {score(export.load(bundle, backend), tokenizer, questions)}", flush=True)


def score(
    logits_of: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]],
    tokenizer: text.WordPiece,
    questions: list[Question],
) -> str:
    """Returns the means of exact match and F1 over all questions."""
    said = [answer(logits_of, tokenizer, question) for question in questions]
    wanted = [[text for _, text in question.answers] for question in questions]
    exact, f1 = (
        np.mean([measure(*pair) for pair in zip(said, wanted, strict=True)])
        for measure in (tasks.exact_match, tasks.answer_f1)
    )
    return f"exact match {exact:.2%}, F1 {f1:.2%} of {len(questions)} questions"


def answer(
    logits_of: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], tokenizer: text.WordPiece, question: Question
) -> str:
    """Returns the text of the best span of all windows."""
    windows = tasks.question_windows(tokenizer, question.text, question.context, **WINDOW)
    inputs = pad_batch([window.token_ids for window in windows], tokenizer.pad_id)
    width = inputs["token_ids"].shape[1]
    segments, context = (
        np.array([[*row, *[0] * (width - len(row))] for row in rows])
        for rows in ([window.segment_ids for window in windows], [window.context_mask for window in windows])
    )
    logits = logits_of({**inputs, "segment_ids": segments.astype("int32")})
    spans = tasks.best_spans(logits["start_logits"], logits["end_logits"], context, max_length=MAX_ANSWER_LENGTH)
    found = [(span.score, window, span) for window, row in zip(windows, spans, strict=True) for span in row]
    _, window, span = max(found, key=lambda each: each[0])
    return question.context[window.offsets[span.start][0] : window.offsets[span.end][1]].strip()


if __name__ == "__main__":
    main()
