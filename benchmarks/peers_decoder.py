"""Greedy generation, 6 layers x 384 with 50,257 words, prompt of 32, 128 new tokens: our files in ONNX Runtime and LiteRT,
against KerasHub (XLA, float32), Hugging Face (torch, float32) and onnxruntime-genai on files of the same quantization.

All have the same architecture and weights. float32 rivals must generate the tokens of our Keras model.
"""

import contextlib
import statistics
import types

import numpy as np
from decode import check, rivals
from gpt2 import GPT2
from measure import kept, ratio, take_turns, timed, working_folder
from peers_genai import Genai, is_installed

MODES = (None, "int8", "weight_int4")
FORMATS = {"onnx": "ONNX", "tflite": "TFLite"}
ENGINE = "onnxruntime-genai"
KINDS = {None: "fp32", "int8": "int8", "weight_int4": "int4"}


def measure(table, options):
    """Adds a row for each of our files and each peer."""
    tiny = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "vocabulary_size": 50}
    measures = GPT2._replace(**tiny) if options.tiny else GPT2
    prompt_length, new = (4, 4) if options.tiny else (32, 128)
    measures = measures._replace(static_length=prompt_length + new)
    prompt = np.random.default_rng(0).integers(0, measures.vocabulary_size, prompt_length).tolist()
    with working_folder(options.files, "decoder") as folder, contextlib.ExitStack() as stack:
        model, own, generators = rivals(_wishes(options, prompt_length), measures, folder / "bundle")
        expected = generators.pop("keras, XLA")
        engines = _engines(table, model, folder, options, stack)
        generators |= {name: lambda *task, engine=engine: engine.decode(*task)[0] for name, engine in engines.items()}
        check({"Keras": expected, **generators}, prompt, min(new, 16), _quantized())
        texts = {name: list(map(int, run(prompt, new))) for name, run in generators.items()}
        runs = {name: timed(lambda run=run: run(prompt, new), warm_up=0) for name, run in generators.items()}
        runs |= {name: lambda engine=engine: engine.decode(prompt, new)[1] for name, engine in engines.items()}
        _add_rows(table, take_turns(runs, options.rounds), texts, new, [name for name in own if name in runs])
    table.note(f"decoder: {new} tokens after a prompt of {prompt_length}, batch 1; faster: 1 / ratio")


def _wishes(options, prompt_length):
    """Options of `decode.rivals`."""
    modes = [mode for mode in _modes(options) if mode]
    peers = ["keras_hub", "hugging_face"]
    sizes = {"prompt": prompt_length, "threads": options.threads}
    return types.SimpleNamespace(formats=list(FORMATS), quantize=modes, peers=peers, **sizes)


def _engines(table, model, folder, options, stack):
    """Returns a dict of name to `Genai` for files of each mode; empty, with a note, if it is not installed."""
    from keras_transformer.export import write_genai

    if not is_installed(options.python):
        table.note(f"{ENGINE} is not installed: see --python")
        return {}
    found = {}
    for mode in _modes(options):
        path = kept(folder / f"genai_{mode}", lambda path, mode=mode: write_genai(model, path, quantize=mode))
        engine = found[_engine(mode)] = stack.enter_context(Genai(path, options.threads, options.python))
        table.versions[ENGINE] = engine.version
    return found


def _modes(options):
    return MODES[:2] if options.tiny else MODES


def _engine(mode):
    return f"{ENGINE}, {KINDS[mode]}"


def _quantized():
    """Returns the name suffixes of rivals that may generate other tokens than the float model."""
    return [ending for mode in MODES if mode for ending in (mode, KINDS[mode])]


def _add_rows(table, turns, texts, new, own):
    def speed(name):
        return round(new / statistics.median(turn.wall for turn in turns[name]), 1)

    for name in own:
        format, _, mode = name.partition(", ")
        kind = KINDS[mode or None]
        same = {_engine(mode or None)}
        peers = [peer for peer in texts if peer not in own and (not peer.startswith(ENGINE) or peer in same)]
        for peer in peers:
            row = {"network": "decoder", "kind": f"{FORMATS[format]}, {kind}", "peer": peer}
            row |= {"tokens_per_s": speed(name), "peer_tokens_per_s": speed(peer)}
            found = ratio(turns[name], turns[peer])
            row |= {"same_text": texts[name] == texts[peer], **found, "faster": round(1 / found["ratio"], 2)}
            table.add(**row)
