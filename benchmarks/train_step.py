"""One training step against the same network from `keras.layers`, KerasHub, PyTorch and, on JAX, Flax.

    python benchmarks/train_step.py                     # both networks, with and without XLA; about ten minutes on two cores
    python benchmarks/train_step.py --networks vit --modes xla --rounds 30
    KERAS_BACKEND=jax python benchmarks/train_step.py --peers keras_layers flax

Classifiers of images and of text that read the first token. Ours has `models.first_token`, whose last block computes
nothing else, as no peer does; `--all-tokens` measures it without.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import importlib.util

import keras
import numpy as np
from measure import Table, arguments, limit_threads, milliseconds, ratio, ratio_note, take_turns, timed, versions
from networks import ENCODER, ENCODERS, TINY, VIT, VITS, same_weights

from keras_transformer import models, training

MODES = {"plain": False, "xla": True}
NUM_CLASSES = 10
KERAS_PEERS = ("keras_layers", "keras_hub")
OTHER_PEERS = ("torch", "torch_compiled", "flax")


def image_batch(measures, batch_size):
    random = np.random.default_rng(0)
    images = random.random((batch_size, measures.image_size, measures.image_size, 3), dtype="float32")
    return images, random.integers(0, NUM_CLASSES, batch_size)


def text_batch(measures, batch_size):
    """Returns token ids in rows with up to half padding."""
    random = np.random.default_rng(0)
    token_ids = random.integers(0, measures.vocabulary_size, (batch_size, measures.length), dtype="int32")
    lengths = random.integers(measures.length // 2, measures.length + 1, (batch_size, 1))
    padding_mask = np.arange(measures.length) < lengths
    return {"token_ids": token_ids, "padding_mask": padding_mask}, random.integers(0, NUM_CLASSES, batch_size)


NETWORKS = {"vit": (VITS, VIT, image_batch), "encoder": (ENCODERS, ENCODER, text_batch)}


def classifier(backbone):
    """Returns a backbone with a linear head over the first token."""
    logits = keras.layers.Dense(NUM_CLASSES, dtype="float32")(backbone.output[:, 0])
    return keras.Model(backbone.input, logits, name=backbone.name)


def ours(build, measures, all_tokens=False):
    """Returns the classifier as a user of this library writes it."""
    backbone = build(measures)
    return classifier(backbone if all_tokens else models.first_token(backbone))


def compiled(model, jit_compile):
    optimizer = training.FusedAdamW if model.name == "ours" else keras.optimizers.AdamW
    model.compile(
        optimizer(1e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    return model


def measure(table, network, mode, options):
    builders, measures, make_batch = NETWORKS[network]
    measures = measures._replace(**TINY) if options.tiny else measures
    batch = make_batch(measures, options.batch_size)
    rivals = {"ours": ours(builders["ours"], measures, options.all_tokens)}
    rivals |= {name: classifier(builders[name](measures)) for name in options.peers if name in KERAS_PEERS}
    parameters = same_weights(*rivals.values())
    steps = {name: _step(compiled(model, MODES[mode]), batch) for name, model in rivals.items()}
    for name in options.peers:
        if name in OTHER_PEERS:
            step, found = _other_step(name, network, measures, batch)
            if found != parameters:
                raise AssertionError(f"Not the same network: {parameters} and {found} parameters of {name}")
            steps[name] = timed(step)
    turns = take_turns(steps, options.rounds)
    for peer in options.peers:
        table.add(
            network=network,
            mode=mode,
            peer=peer,
            parameters=parameters,
            ours_ms=milliseconds(turns["ours"]),
            peer_ms=milliseconds(turns[peer]),
            **ratio(turns["ours"], turns[peer]),
        )


def _step(model, batch):
    return timed(lambda: model.train_on_batch(*batch))


def _other_step(name, network, measures, batch):
    """Returns a function that runs a step of a peer that is not written in Keras, and its number of parameters."""
    kind = {"vit": "ViT", "encoder": "Encoder"}[network]
    if name == "flax":
        import flax_networks

        return flax_networks.training_step(getattr(flax_networks, kind)(measures, NUM_CLASSES), batch)
    import torch_networks

    peer = getattr(torch_networks, kind)(measures, NUM_CLASSES)
    if network == "vit":
        batch = (np.ascontiguousarray(batch[0].transpose(0, 3, 1, 2)), batch[1])
    step = torch_networks.training_step(peer, batch, "cpu", name == "torch_compiled", autocast=False)
    return step, torch_networks.count_parameters(peer)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="with and without XLA")
    peers = [*KERAS_PEERS, *OTHER_PEERS]
    help = "default: those that are installed; flax on JAX, PyTorch otherwise"
    parser.add_argument("--peers", nargs="+", choices=peers, default=_installed_peers(), help=help)
    parser.add_argument("--all-tokens", action="store_true", help="ours computes all tokens in its last block too")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument(
        "--threads",
        type=int,
        help="threads of TensorFlow and PyTorch; 1 gives the most stable ratios on a shared machine",
    )
    return parser.parse_args()


def _installed_peers():
    others = ["flax"] if keras.backend.backend() == "jax" else ["torch", "torch_compiled"]
    return [*KERAS_PEERS, *(name for name in others if importlib.util.find_spec(name.partition("_")[0]))]


def main():
    options = parse()
    if options.threads:
        limit_threads(options.threads)
    packages = versions("keras-transformer", "keras", keras.backend.backend(), "keras-hub", "torch", "flax")
    title = f"Training step, {keras.backend.backend()} backend, batch of {options.batch_size}"
    table = Table(title + (f", {options.threads} threads" if options.threads else ""), packages)
    for network in options.networks:
        for mode in options.modes:
            keras.utils.clear_session()
            keras.utils.set_random_seed(0)
            measure(table, network, mode, options)
    table.note(ratio_note(options.rounds))
    table.finish(options.json)


if __name__ == "__main__":
    main()
