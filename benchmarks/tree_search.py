"""Scores of tree search by number of simulations, by its own scorer and by an independent classifier, the judge.

    python benchmarks/tree_search.py --data-dir DIR --json tree_search.json       # DIR/stsa.binary.train and so on
    python benchmarks/tree_search.py --data-dir DIR --tiny

A small language model is trained on sentences of film reviews, and two sentiment classifiers on one half of the sentences
each. The model continues the first words of held-out sentences, greedily and by tree search with the first classifier as
the scorer; the second classifier is the judge. The likelihood of the texts under the model shows the cost of the search.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import time

import keras
import numpy as np
from measure import Table, arguments, versions

from keras_transformer import data, generation, models, tasks, text, training

SIZE = models.Size(num_layers=2, hidden_dim=128, num_heads=4, intermediate_dim=256)
JUDGE_SIZE = models.Size(num_layers=1, hidden_dim=64, num_heads=2, intermediate_dim=128)
MAX_LENGTH = 96
BUCKETS = {"tokens_per_batch": 1024, "multiple": 4, "growth": 1, "fill": False}


def read(directory, split):
    """Returns pairs of a sentence and its sentiment."""
    lines = [line.partition(" ") for line in data.read_lines(directory / f"stsa.binary.{split}") if line.strip()]
    return [(sentence.strip(), int(label)) for label, _, sentence in lines]


def writer(sentences, tokenizer, options):
    """Returns a language model trained on sentences."""
    backbone = models.Decoder(SIZE, tokenizer.vocabulary_size, max_sequence_length=MAX_LENGTH, dropout=0.1)
    model = tasks.LanguageModel(backbone, tokenizer=tokenizer, start_id=tokenizer.start_id)
    encoded = [tokens[:MAX_LENGTH] for tokens in tokenizer.encode(sentences, start=True, end=True)]
    stream = data.bucket_batches(*data.next_token(encoded), seed=options.seed, **BUCKETS)
    _fit(model, stream, training.MaskedCrossentropy(), 2e-3, 1 if options.tiny else options.epochs)
    return model


def classifier(pairs, tokenizer, options):
    """Returns a function of texts to the probability that each is positive."""
    backbone = models.Encoder(JUDGE_SIZE, tokenizer.vocabulary_size, max_sequence_length=MAX_LENGTH, dropout=0.2)
    model = tasks.SequenceClassifier(backbone, 2, pooling="mean", dropout=0.3)
    sentences, labels = zip(*pairs, strict=True)
    inputs = {"token_ids": data.Ragged.of([_cut(tokens) for tokens in tokenizer.encode(list(sentences))])}
    stream = data.bucket_batches(inputs, np.array(labels, "int32"), seed=options.seed, **BUCKETS)
    _fit(model, stream, keras.losses.SparseCategoricalCrossentropy(), 1e-3, 1 if options.tiny else 6)

    def score(texts):
        rows = [_cut(tokens) for tokens in tokenizer.encode(list(texts))]
        # Few shapes, to limit retracing.
        width = -(-max(map(len, rows)) // 32) * 32
        ids = np.zeros((len(rows), width), "int32")
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = tokens
        mask = np.arange(width) < np.array([[len(tokens)] for tokens in rows])
        return model.predict_on_batch({"token_ids": ids, "padding_mask": mask})[:, 1]

    return score


def _cut(tokens):
    return list(tokens[:MAX_LENGTH]) or [0]


def _fit(model, stream, loss, learning_rate, epochs):
    steps = len(stream) * epochs
    schedule = training.WarmupCosine(learning_rate, max(1, steps // 10), steps, 0.1)
    model.compile(keras.optimizers.AdamW(schedule, weight_decay=0.05, global_clipnorm=1.0), loss, jit_compile=False)
    history = model.fit(stream.repeat(), steps_per_epoch=len(stream), epochs=epochs, shuffle=False, verbose=0).history
    print(f"{model.name}: loss {history['loss'][0]:.3f} -> {history['loss'][-1]:.3f}", flush=True)


def accuracy(score, pairs):
    sentences, labels = zip(*pairs, strict=True)
    return float(np.mean((score(sentences) > 0.5) == np.array(labels)))


def nats(model, prompts, texts):
    """Returns the mean cross-entropy of the new tokens in nats."""
    total, count, encode = 0.0, 0, model.tokenizer.encode
    for prompt, new in zip(prompts, texts, strict=True):
        before, whole = len(encode(prompt, start=True)), encode(prompt + new, start=True)
        ids = np.array([whole[:-1]], "int32")
        logits = model.predict_on_batch({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)})[0]
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        total -= log_probs[np.arange(before - 1, len(whole) - 1), whole[before:]].sum()
        count += len(whole) - before
    return total / max(count, 1)


def samplers(options, scorer):
    yield "greedy", 0, "greedy"
    for count in (2, 8) if options.tiny else options.simulations:
        yield "tree search", count, generation.TreeSearch(scorer, num_simulations=count, top_k=20)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=pathlib.Path, required=True)
    parser.add_argument("--epochs", type=int, default=5, help="epochs of the language model")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--new", type=int, default=12, help="tokens to generate")
    parser.add_argument("--simulations", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    options = parse()
    keras.utils.set_random_seed(options.seed)
    train, test = read(options.data_dir, "train"), read(options.data_dir, "test")
    if options.tiny:
        train, test, options.prompts, options.new = train[:200], test[:20], 2, 4
    order = np.random.default_rng(options.seed).permutation(len(train))
    train = [train[index] for index in order]
    tokenizer = text.SentencePiece.train([sentence for sentence, _ in train], 600 if options.tiny else 4000)
    model = writer([sentence for sentence, _ in train], tokenizer, options)
    half = len(train) // 2
    scorer, judge = (classifier(part, tokenizer, options) for part in (train[:half], train[half:]))
    prompts = [" ".join(sentence.split()[:3]) for sentence, _ in test[: options.prompts]]
    table = Table("Tree search for positive reviews", versions("keras-transformer", "keras", "tensorflow"))
    for name, count, sampler in samplers(options, scorer):
        start = time.perf_counter()
        texts = model.generate(prompts, max_new_tokens=options.new, sampler=sampler, seed=options.seed)
        seconds = time.perf_counter() - start
        whole = [prompt + new for prompt, new in zip(prompts, texts, strict=True)]
        found = {"scorer": scorer(whole).mean(), "judge": judge(whole).mean(), "nats": nats(model, prompts, texts)}
        rounded = {key: round(float(value), 3) for key, value in found.items()}
        table.add(sampler=name, simulations=count, **rounded, seconds=round(seconds, 1), first=whole[0])
    right = ", ".join(f"{name} {accuracy(each, test):.3f}" for name, each in (("scorer", scorer), ("judge", judge)))
    table.note(
        f"{options.prompts} prompts of three words, {options.new} new tokens. Accuracy on the test set: {right}."
    )
    table.note("scorer, judge: the mean probability of being positive; nats: per new token under the language model.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
