"""Trains a small language model to answer questions by browsing documentation, with quotes, after WebGPT.

    apt-get download python3.11-doc && dpkg -x python3.11-doc_*.deb doc
    python examples/browsing_answers.py --corpus doc/usr/share/doc/python3.11/html
    python examples/browsing_answers.py --quick          # a tiny corpus that the script writes, and a few steps

Requires `pip install bm25s`.

Questions are generated from entries of the documentation: which version added a function, since when it is deprecated, what
the default of an argument is. The answer to each stands in one place. Three sets of names do not overlap: those of behavior
cloning, those of the reward model and reinforcement learning, and held-out ones, which are measured.

1. A scripted searcher, which knows where the answers stand, gives demonstrations in the text browser.
2. Behavior cloning: a language model of 0.5 million parameters, which first learns to copy from random tokens, is trained
   on its actions.
3. A reward model is trained on comparisons of episodes: those that the model has sampled, and demonstrations.
4. Best of n: of n sampled episodes, the one with the largest reward counts.
5. One round of reinforcement learning on the rewards, with a penalty for leaving the cloned model.

The same language model also learns to answer from the question alone, and from one passage that is retrieved: the best of
BM25, and the nearest chunk of `retrieval.ChunkDatabase`. An answer counts if it is right and its quote stands in the page,
verbatim, within the entry that was asked for.

It prints a table, and writes `figures.json`, `cloned.keras` and `reinforced.keras` to `--out`.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import browsing
from keras_transformer import (
    attention,
    data,
    generation,
    load_model,
    models,
    retrieval,
    tasks,
    text,
    training,
)

# Every other block is a convolution over the last four tokens: with it, attention learns soon to copy what follows a word.
SIZE = models.Size(num_layers=6, hidden_dim=96, num_heads=4, intermediate_dim=192)
QUICK_SIZE = models.Size(num_layers=2, hidden_dim=32, num_heads=2, intermediate_dim=64)
LIMITS = browsing.BrowserLimits(max_actions=10, max_quotes=1, max_state=440, max_links=5, shown_actions=2, max_quote=80)
PASSAGE_SIZE, CHUNK_SIZE, MAX_LENGTH = 330, 64, 384
PROMPT_WEIGHT, REWARD_EPOCHS, KL_WEIGHT, MIN_ADVANTAGE = 0.05, 4, 0.1, 0.05
# Rows, batch size and steps of learning to copy: of the model, and with --quick.
COPYING = {False: ((64, 48, 800), (384, 10, 500)), True: ((64, 4, 2),)}
# Longest action, in tokens, and number of texts that are decoded at a time.
MAX_ACTION, DECODED = 40, 128
# Files of Sphinx that are no text.
LEFT_OUT = ("genindex", "search", "py-modindex", "contents", "_", "license", "copyright", "changelog", "download")
# Parts of the names: cloning, reward and reinforcement, held out.
PARTS = {"cloning": 0.65, "reward": 0.15, "held-out": 0.2}


# From a question to one passage.
Retrieve = Callable[[browsing.Fact], browsing.Passage]
# Of every `fit`; empty.
CALLBACKS: list[keras.callbacks.Callback] = []


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.threads:
        tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
        tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    if arguments.quick:
        write_corpus(arguments.out / "corpus")
    corpus = browsing.Corpus(arguments.corpus or arguments.out / "corpus", is_content)
    with browsing.CorpusServer(corpus) as server:
        run(arguments, corpus, browsing.CorpusClient(server.origin, max_pages=len(corpus)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of the HTML files")
    parser.add_argument("--out", type=Path, default=Path("browsing_answers"), help="output directory")
    parser.add_argument("--cloned", type=Path, help="a file `cloned.keras` of a run before, to go on from there")
    parser.add_argument("--epochs", type=int, default=3, help="of behavior cloning")
    parser.add_argument("--facts", type=int, default=3000, help="number of questions")
    parser.add_argument("--samples", type=int, default=4, help="n of the best of n")
    parser.add_argument("--vocabulary", type=int, default=1536)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=2.5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="TensorFlow threads; default: all cores")
    parser.add_argument("--quick", action="store_true", help="a tiny corpus and a tiny model")
    arguments = parser.parse_args()
    if arguments.corpus is None and not arguments.quick:
        parser.error("--corpus DIR is required, or --quick")
    if arguments.quick:
        arguments.epochs, arguments.samples, arguments.vocabulary = min(arguments.epochs, 1), 2, 400
    return arguments


def is_content(address: str) -> bool:
    return not address.rpartition("/")[2].startswith(LEFT_OUT)


def write_corpus(directory: Path) -> None:
    """Writes a tiny corpus: pages of modules whose functions were added in some version, and pages that mention them."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for module in ("cats", "dogs", "owls", "bees"):
        entries, mentions = [], []
        for verb in ("count", "draw", "feed", "find", "name", "sort", "wake", "wash"):
            name, version = f"{module}.{verb}", f"{rng.integers(1, 4)}.{rng.integers(10)}"
            entries.append(
                f'<dt id="{name}">{name}(all=True, times={rng.integers(2, 9)})</dt><dd><p>Will {verb} the {module}.</p>'
                f"<p>New in version {version}.</p></dd>"
            )
            mentions.append(f"<li>{name}() can {verb} the {module}.</li>")
        page = f"<title>{module}</title><h1>{module}</h1><ul>{''.join(mentions)}</ul><dl>{''.join(entries)}</dl>"
        (directory / f"{module}.html").write_text(page)
        (directory / f"news_{module}.html").write_text(f"<title>News of {module}</title><ul>{''.join(mentions)}</ul>")


def run(arguments: argparse.Namespace, corpus: browsing.Corpus, client: browsing.CorpusClient) -> None:
    """Demonstrations, training and figures."""
    start = time.process_time()
    pages = list(corpus.pages())
    parts = split_facts(browsing.sphinx_facts(pages), arguments)
    shown = demonstrate_all(parts, client)
    cloning = [episode for _, episode in shown["cloning"]]
    # A name that is copied has other tokens after a space than after a dot, unless spaces are tokens of their own.
    shown_texts = [step.prompt for each in cloning for step in each.steps]
    tokenizer = text.BytePair.train(shown_texts, arguments.vocabulary, separate_spaces=True)
    passages = {"passage of BM25": best_passages(pages), "nearest chunk": nearest_chunks(pages, tokenizer, arguments)}
    model = load_model(arguments.cloned) if arguments.cloned else build_model(tokenizer, arguments.quick)
    steps = [step for episode in cloning for step in episode.steps]
    steps += reading_steps([fact for fact, _ in shown["cloning"]], passages)
    print(f"{len(steps):,} steps prepared in {time.process_time() - start:.0f} s", flush=True)
    figures: dict[str, Any] = {"cloning_seconds": None if arguments.cloned else clone(model, steps, arguments)}
    model.compile(jit_compile=False)
    model.save(arguments.out / "cloned.keras")

    held_out, others = ([fact for fact, _ in shown[part]] for part in ("held-out", "reward"))
    shares = {name: measure_reader(model, held_out, passages.get(name)) for name in ("question alone", *passages)}
    shares["browsing, cloned"] = measure(held_out, browse(model, held_out, client), client)
    samples = sample(model, others, client, arguments.samples, arguments.seed + 1)
    reward_model = build_reward_model(model, arguments.quick)
    # The demonstrations are compared too, so that questions count whose samples all failed.
    compared = [[*each, episode] for each, (_, episode) in zip(samples, shown["reward"], strict=True)]
    figures["reward_accuracy"] = train_reward_model(reward_model, others, compared, client, tokenizer, arguments)
    shares |= measure_best(model, reward_model, held_out, client, arguments)
    figures["divergence"] = reinforce(model, reward_model, samples, arguments)
    model.save(arguments.out / "reinforced.keras")
    shares["browsing, reinforced"] = measure(held_out, browse(model, held_out, client), client)
    figures |= {"questions": {name: len(each) for name, each in shown.items()}, "shares": shares}
    figures["seconds"] = time.process_time() - start
    (arguments.out / "figures.json").write_text(json.dumps(figures, indent=1))
    print(f"{'held-out questions answered':44} {'right':>7} {'right, with a true quote':>26}", flush=True)
    for name, share in shares.items():
        print(f"{name:44} {share['right']:7.3f} {share['proven']:26.3f}", flush=True)


def split_facts(facts: list[browsing.Fact], arguments: argparse.Namespace) -> dict[str, list[browsing.Fact]]:
    """Splits facts by name, about as many of each kind."""
    rng = np.random.default_rng(arguments.seed)
    by_kind: dict[str, list[browsing.Fact]] = {}
    for index in rng.permutation(len(facts)):
        by_kind.setdefault(facts[index].kind, []).append(facts[index])
    chosen = [fact for each in by_kind.values() for fact in each[: arguments.facts // len(by_kind)]]
    names = sorted({fact.name for fact in chosen})
    order = rng.permutation(len(names))
    bounds = np.round(np.cumsum([0.0, *PARTS.values()]) * len(names)).astype(int)
    parts = {}
    for part, start, end in zip(PARTS, bounds[:-1], bounds[1:], strict=True):
        own = {names[index] for index in order[start:end]}
        parts[part] = [fact for fact in chosen if fact.name in own]
    return parts


def demonstrate_all(
    parts: dict[str, list[browsing.Fact]], client: browsing.CorpusClient
) -> dict[str, list[tuple[browsing.Fact, browsing.Episode]]]:
    """Returns the facts of each part that the searcher finds, with its episodes. The others count nowhere."""
    found = {}
    for name, facts in parts.items():
        pairs = [(fact, browsing.demonstrate(new_browser(client, fact), fact)) for fact in facts]
        found[name] = [(fact, episode) for fact, episode in pairs if episode is not None]
        proven = sum(fact.is_proven(each.answer, each.quotes, client) for fact, each in found[name])
        print(f"{name}: {len(facts)} questions, {len(found[name])} demonstrations, {proven} proven", flush=True)
    return found


def new_browser(client: browsing.CorpusClient, fact: browsing.Fact) -> browsing.Browser:
    return browsing.Browser(client, fact.question, LIMITS)


def best_passages(pages: list[browsing.Page]) -> Retrieve:
    """Returns the function that retrieves the best passage of BM25."""
    index = browsing.PassageIndex(browsing.cut_passages(pages, PASSAGE_SIZE))
    print(f"{len(pages)} pages, {len(index.passages):,} passages", flush=True)
    return lambda fact: index.best(fact.question) or index.passages[0]


def nearest_chunks(pages: list[browsing.Page], tokenizer: text.Tokenizer, arguments: argparse.Namespace) -> Retrieve:
    """Returns the function that retrieves the chunk nearest to the question, which is repeated to the size of a chunk."""
    pages = [page for page in pages if page.text]
    options: dict[str, Any] = {"chunk_size": CHUNK_SIZE, "embed": retrieval.HashedNGrams(width=256)}
    texts = [page.text for page in pages]
    database = retrieval.ChunkDatabase.build(arguments.out / "chunks", texts, tokenizer, **options)

    def retrieve(fact: browsing.Fact) -> browsing.Passage:
        query = (tokenizer.encode(fact.question) * CHUNK_SIZE)[:CHUNK_SIZE]
        found = database.search([query], 1)[0]
        page = pages[int(database.chunks.documents(found)[0])]
        # A chunk may begin or end within a character.
        chunk = tokenizer.decode(database.chunks.tokens(found)[0].tolist()).strip("\ufffd")
        start = max(page.text.find(chunk), 0)
        return browsing.Passage(page, start, start + len(chunk))

    return retrieve


def build_backbone(vocabulary_size: int, quick: bool) -> keras.Model:
    mixers = [attention.LightweightConvolution(num_heads=8, kernel_size=4), "softmax"]
    options: dict[str, Any] = {"position": "rotary", "norm": "rms_norm", "feedforward": [None, "gated"]}
    return models.Decoder(QUICK_SIZE if quick else SIZE, vocabulary_size, attention=mixers, **options)


def build_model(tokenizer: text.BytePair, quick: bool) -> tasks.LanguageModel:
    model = tasks.LanguageModel(build_backbone(tokenizer.vocabulary_size, quick), tokenizer=tokenizer)
    print(f"{model.count_params():,} parameters", flush=True)
    return model


def reading_prompt(fact: browsing.Fact, passage: browsing.Passage | None) -> str:
    """What is shown without a browser: the question, and one passage or none."""
    if passage is None:
        return f"question: {fact.question}\nrecall:"
    return f"question: {fact.question}\npage: {passage.page.title}\n| {passage.text}\nextract:"


def reading_steps(facts: list[browsing.Fact], passages: dict[str, Retrieve]) -> list[browsing.Step]:
    """Demonstrations of answers without a browser: the quote and the answer, whether the passage contains them or not."""
    retrieves: list[Retrieve | None] = [None, passages["passage of BM25"]]
    shown = [(fact, retrieve and retrieve(fact)) for fact in facts for retrieve in retrieves]
    return [browsing.Step(reading_prompt(fact, passage), f"{fact.quote} => {fact.answer}") for fact, passage in shown]


def learn_to_copy(model: tasks.LanguageModel, arguments: argparse.Namespace) -> None:
    """Trains the model to repeat what it has read: first in short rows, where that is learned soon, then in long ones.

    The language model of the paper was trained on text before; this one starts from nothing.
    """
    for length, batch_size, steps in COPYING[arguments.quick]:
        batches = data.repeated_segment_batches(model.vocabulary_size, length, batch_size, steps, seed=arguments.seed)
        schedule = training.WarmupCosine(arguments.learning_rate, steps // 4, steps, 0.05)
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, beta_2=0.98, global_clipnorm=1.0)
        model.compile(optimizer, training.MaskedCrossentropy(), weighted_metrics=[training.MaskedAccuracy()])
        model.fit(batches.epoch(), verbose=2, shuffle=False, callbacks=CALLBACKS)


def clone(model: tasks.LanguageModel, steps: list[browsing.Step], arguments: argparse.Namespace) -> float:
    """Trains the model on what the searcher did, and a little on what it was shown; returns the seconds of CPU time."""
    start = time.process_time()
    learn_to_copy(model, arguments)
    batches = browsing.action_batches(
        steps,
        model.tokenizer,
        batch_size=arguments.batch_size,
        max_length=MAX_LENGTH,
        prompt_weight=PROMPT_WEIGHT,
        seed=arguments.seed,
    )
    count = arguments.epochs * len(batches)
    schedule = training.WarmupCosine(arguments.learning_rate, min(100, count // 2), count, 0.05)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05, beta_2=0.98, global_clipnorm=1.0)
    model.compile(optimizer, training.MaskedCrossentropy(), jit_compile=False)
    print(f"{count:,} training steps; {batches.dropped} rows were too long", flush=True)
    model.fit(
        batches.repeat(),
        steps_per_epoch=len(batches),
        epochs=arguments.epochs,
        verbose=2,
        shuffle=False,
        callbacks=CALLBACKS,
    )
    seconds = time.process_time() - start
    print(f"cloned in {seconds / 60:.1f} minutes of CPU time", flush=True)
    return seconds


def policy(model: tasks.LanguageModel, **options: Any) -> browsing.LanguagePolicy:
    return browsing.LanguagePolicy(model.generator(), max_new_tokens=MAX_ACTION, batch_size=DECODED, **options)


def browse(
    model: tasks.LanguageModel, facts: list[browsing.Fact], client: browsing.CorpusClient, **options: Any
) -> list[browsing.Episode]:
    return browsing.run_episodes([new_browser(client, fact) for fact in facts], policy(model, **options))


def measure(
    facts: list[browsing.Fact], episodes: list[browsing.Episode], client: browsing.CorpusClient
) -> dict[str, float]:
    """Returns the shares of right answers, and of those with a true quote."""
    pairs = list(zip(facts, episodes, strict=True))
    right = [fact.is_answered(episode.answer, episode.quotes) for fact, episode in pairs]
    proven = [fact.is_proven(episode.answer, episode.quotes, client) for fact, episode in pairs]
    return {"right": float(np.mean(right)), "proven": float(np.mean(proven))}


def measure_reader(
    model: tasks.LanguageModel, facts: list[browsing.Fact], retrieve: Retrieve | None
) -> dict[str, float]:
    """Returns the shares without a browser.

    What a model with the question alone recites counts as a true quote if it is the passage of the entry: it cannot say
    where that stands.
    """
    passages = [retrieve and retrieve(fact) for fact in facts]
    prompts = [reading_prompt(fact, passage) for fact, passage in zip(facts, passages, strict=True)]
    right, proven = [], []
    for fact, passage, written in zip(facts, passages, policy(model)(prompts), strict=True):
        recited, _, answer = written.partition(" => ")
        right.append(fact.is_answered(answer, ()))
        quote = passage.quote(recited) if passage else None
        is_true = recited == fact.quote if passage is None else quote is not None and fact.is_shown_by(quote)
        proven.append(right[-1] and is_true)
    return {"right": float(np.mean(right)), "proven": float(np.mean(proven))}


def sample(
    model: tasks.LanguageModel, facts: list[browsing.Fact], client: browsing.CorpusClient, count: int, seed: int
) -> list[list[browsing.Episode]]:
    """Returns `count` sampled episodes of each question."""
    sampler = generation.Random(temperature=1.0)
    episodes = browse(model, [fact for fact in facts for _ in range(count)], client, sampler=sampler, seed=seed)
    return [episodes[start : start + count] for start in range(0, len(episodes), count)]


def build_reward_model(model: tasks.LanguageModel, quick: bool) -> keras.Model:
    """Returns a model from question, quotes and answer to a score. It begins with the weights of the cloned model."""
    backbone = build_backbone(model.vocabulary_size, quick)
    backbone.set_weights(model.backbone.get_weights())
    reward_model = tasks.SequenceClassifier(backbone, 1, pooling="last", activation=None, name="reward_model")
    reward_model.compile(jit_compile=False)
    return reward_model


def comparisons(
    facts: list[browsing.Fact],
    samples: list[list[browsing.Episode]],
    client: browsing.CorpusClient,
    seed: int,
) -> tuple[list[str], list[str], np.ndarray]:
    """Returns pairs of texts of the same question, one proven and one not, and whether the first is the proven one."""
    rng = np.random.default_rng(seed)
    first, second, labels = [], [], []
    for fact, episodes in zip(facts, samples, strict=True):
        texts: dict[bool, set[str]] = {True: set(), False: set()}
        for episode in episodes:
            texts[fact.is_proven(episode.answer, episode.quotes, client)].add(episode.reference_text)
        for good in sorted(texts[True]):
            for bad in sorted(texts[False]):
                labels.append(float(rng.integers(2)))
                first.append(good if labels[-1] else bad)
                second.append(bad if labels[-1] else good)
    return first, second, np.array(labels, "float32")


def train_reward_model(
    reward_model: keras.Model,
    facts: list[browsing.Fact],
    samples: list[list[browsing.Episode]],
    client: browsing.CorpusClient,
    tokenizer: text.Tokenizer,
    arguments: argparse.Namespace,
) -> float | None:
    """Trains the reward model; returns its accuracy on comparisons of the last tenth of the questions."""
    split = max(1, len(facts) * 9 // 10)
    trained = comparisons(facts[:split], samples[:split], client, arguments.seed)
    tested = comparisons(facts[split:], samples[split:], client, arguments.seed)
    print(f"{len(trained[2])} comparisons to train the reward model, {len(tested[2])} to test it", flush=True)
    if not len(trained[2]):
        return None
    inputs = [
        {
            name: keras.Input((None,), dtype=each.dtype, name=f"{side}_{name}")
            for name, each in reward_model.input.items()
        }
        for side in ("first", "second")
    ]
    scores = keras.layers.Concatenate()([reward_model(each) for each in inputs])
    pairs = keras.Model({each.name: each for side in inputs for each in side.values()}, scores)
    pairs.compile(
        keras.optimizers.AdamW(3e-4, weight_decay=0.05, global_clipnorm=1.0),
        training.ComparisonLoss(),
        jit_compile=False,
    )
    pairs.fit(
        pair_inputs(tokenizer, *trained[:2]),
        trained[2],
        batch_size=16,
        epochs=REWARD_EPOCHS,
        verbose=2,
        callbacks=CALLBACKS,
    )
    if not len(tested[2]):
        return None
    found = pairs.predict(pair_inputs(tokenizer, *tested[:2]), verbose=0)
    accuracy = float(np.mean((found[:, 0] > found[:, 1]) == (tested[2] > 0.5)))
    print(f"accuracy of the reward model: {accuracy:.3f}", flush=True)
    return accuracy


def pair_inputs(tokenizer: text.Tokenizer, first: Sequence[str], second: Sequence[str]) -> dict[str, np.ndarray]:
    both = tokenizer([*first, *second])
    count = len(first)
    names = ("token_ids", "padding_mask")
    return {f"first_{name}": both[name][:count] for name in names} | {
        f"second_{name}": both[name][count:] for name in names
    }


def rewards(reward_model: keras.Model, tokenizer: text.Tokenizer, samples: list[list[browsing.Episode]]) -> np.ndarray:
    """Returns the scores of episodes, `(questions, n)`."""
    batch = tokenizer([episode.reference_text for episodes in samples for episode in episodes])
    inputs = {name: batch[name] for name in ("token_ids", "padding_mask")}
    scores = reward_model.predict(inputs, batch_size=DECODED, verbose=0)
    return scores.reshape(len(samples), -1)


def measure_best(
    model: tasks.LanguageModel,
    reward_model: keras.Model,
    facts: list[browsing.Fact],
    client: browsing.CorpusClient,
    arguments: argparse.Namespace,
) -> dict[str, dict[str, float]]:
    """Returns the shares of the first sample, of the best of n by reward, and of the best of n by the truth."""
    samples = sample(model, facts, client, arguments.samples, arguments.seed + 2)
    best = np.argmax(rewards(reward_model, model.tokenizer, samples), axis=1)
    chosen = [episodes[index] for episodes, index in zip(samples, best, strict=True)]
    proven = [
        [fact.is_proven(each.answer, each.quotes, client) for each in episodes]
        for fact, episodes in zip(facts, samples, strict=True)
    ]
    perfect = [episodes[int(np.argmax(each))] for episodes, each in zip(samples, proven, strict=True)]
    name = f"best of {arguments.samples}"
    return {
        "browsing, one sample": measure(facts, [episodes[0] for episodes in samples], client),
        f"browsing, {name} by reward": measure(facts, chosen, client),
        f"browsing, {name} by the truth": measure(facts, perfect, client),
    }


def reinforce(
    model: tasks.LanguageModel,
    reward_model: keras.Model,
    samples: list[list[browsing.Episode]],
    arguments: argparse.Namespace,
) -> float:
    """One round of reinforcement learning from the cloned model; returns the divergence from it, of a token, in the end."""
    scores = rewards(reward_model, model.tokenizer, samples)
    centered = (scores - scores.mean(axis=1, keepdims=True)) / (scores.std() + 1e-6)
    pairs = [
        (step, value)
        for episodes, values in zip(samples, centered, strict=True)
        for episode, value in zip(episodes, values, strict=True)
        for step in episode.steps
        if abs(value) > MIN_ADVANTAGE
    ]
    reference = build_model(model.tokenizer, arguments.quick)
    reference.set_weights(model.get_weights())
    if not pairs:
        return 0.0
    steps, values = zip(*pairs, strict=True)
    options: dict[str, Any] = {"batch_size": arguments.batch_size, "max_length": MAX_LENGTH, "seed": arguments.seed}
    batches = browsing.action_batches(steps, model.tokenizer, advantages=values, **options)
    trainer = training.PolicyGradientTrainer(model, reference, kl_weight=KL_WEIGHT)
    trainer.compile(keras.optimizers.Adam(1e-4, global_clipnorm=1.0), jit_compile=False)
    print(f"{len(steps)} steps of reinforcement learning", flush=True)
    history = trainer.fit(batches.epoch(), epochs=1, verbose=2, shuffle=False, callbacks=CALLBACKS).history
    return history["kl"][-1]


if __name__ == "__main__":
    main()
