"""Generates a page for each mechanism, mixer, recurrence and position."""

import io
import json
import logging

import keras

from keras_transformer import blocks, feedforward, plots, positions
from keras_transformer import catalog as catalog
from keras_transformer.attention import mechanism as contract
from keras_transformer.plots.attention_pattern import attention_weights, draw_patterns
from markup import PARTS, ROOT, cases, documented, facts, link, linked, mechanisms_page, signature, table
from uses import top

N, WINDOW = mechanisms_page.N, mechanisms_page.WINDOW
_LOG = logging.getLogger("mkdocs.hooks.part_pages")  # A warning fails a strict build.
_DIRECTIONS = {"bidirectional": "two-sided", "causal": "causal"}
_CAPABILITIES = {
    "bidirectional": "two-sided attention",
    "causal": "causal attention",
    "cross": "cross-attention",
    "cache": "decoding token by token with a cache",
    "attention_mask": "a mask of queries by keys",
    "window": "`sliding_window` of `MultiHeadAttention`",
    "scores": "returned attention scores",
    "bias": "positions that add to the scores",
    "query": "positions that depend on the queries",
    "values": "positions that add to the values",
}
# Width of a head in the cases of recurrences.
_KEY_DIM = cases.WIDTH // 2
# Arguments of positions in the figures, beyond the defaults.
_POSITION_ARGUMENTS = {
    "axial": {"shape": (8, 8), "widths": (32, 32)},
    "axial_sinusoidal": {"num_columns": 8},
    "gated_relative_bias": {
        "relative_bias": positions.RelativeBias(
            320, 800, initializer=keras.initializers.RandomNormal(stddev=0.3, seed=0)
        )
    },
    "learned": {"max_sequence_length": 64},
    "relative_grid_bias": {"grid_size": (8, 8)},
}
_PARITY = json.loads((ROOT / "docs" / "parity.json").read_text())


def attention_pages():
    """Returns a dict of path to content, and the navigation."""
    keras.utils.set_random_seed(0)
    pages, navigation, patterns = {}, [], {}
    titles = {"mechanisms": "Mechanisms", "mixers": "Mixers", "recurrences": "Recurrences"}
    for folder, title in titles.items():
        entries = []
        for name, cls in PARTS[folder].items():
            layer = _layer(folder, name)
            patterns[name] = _patterns(folder, name)
            path = f"{folder}/{name}.md"
            pages[path] = _page(folder, name, cls, layer, patterns[name])
            if patterns[name]:
                pages[f"{folder}/{name}_pattern.png"] = _png(draw_patterns(patterns[name]), dpi=150)
            entries.append({name: path})
        navigation.append({title: entries})
    pages |= _overview(patterns)
    return pages, ["attention.md", *navigation]


def position_pages():
    """Returns a dict of path to content, and the navigation."""
    keras.utils.set_random_seed(0)
    pages, entries = {}, []
    for name, cls in PARTS["positions"].items():
        path = f"positions/{name}.md"
        picture = _position_picture(name, cls)
        pages[path] = _position_page(name, cls, picture is not None)
        if picture:
            pages[f"positions/{name}.png"] = picture
        entries.append({name: path})
    rows = [
        {
            "name": link(name, "positions", "positions"),
            "description": catalog.summary(cls),
            "reference": linked(catalog.reference(cls)),
        }
        for name, cls in PARTS["positions"].items()
    ]
    pages["positions/index.md"] = f"# Positions\n\n{positions.__doc__}\n\n{table(rows)}\n"
    return pages, ["positions/index.md", *entries]


def _overview(patterns):
    """Returns the page of all mechanisms, which is also in the repository, with links to their pages."""
    pages = {}
    for word in _DIRECTIONS.values():
        shown = {name: each[word] for name, each in patterns.items() if word in each and name in mechanisms_page.NAMES}
        pages[f"attention_{word}.png"] = _png(draw_patterns(shown), dpi=110)
    rows = mechanisms_page.mechanism_rows()
    for name, row in zip(mechanisms_page.NAMES, rows, strict=True):
        folder = "mechanisms" if name in PARTS["mechanisms"] else "mixers"
        row["name"] = link(name, folder)
        # The page of each has the rest; with it the table is wider than a screen.
        del row["positions"], row["reference"]
        row["cache"] = row["cache"].partition(":")[0]
    positions = mechanisms_page.position_rows()
    for row in positions:
        row["name"] = link(row["name"].strip("`"), "positions")
    pages["attention.md"] = mechanisms_page.page(rows, positions)
    return pages


def _page(folder, name, cls, layer, patterns):
    case = _case(folder, name)
    growth = case.growth
    about = [
        ("forms", catalog.forms(layer.supports)),
        ("cache", mechanisms_page.cache(layer)),
        ("cost", catalog.cost(cls)),
        ("counted", f"at most {_power(growth.memory)} for the largest tensor, {_power(growth.flops)} for the operations"),
        ("positions", _positions(folder, name, layer)),
        ("used in", _combines()),
        ("reference", linked(catalog.reference(cls))),
    ]  # fmt: skip
    picture = f"![Attention pattern]({name}_pattern.png)\n\n{_caption(folder)}\n\n" if patterns else ""
    return "\n\n".join(
        [
            f"# {name}",
            catalog.summary(cls),
            top(folder, name),
            picture + facts(about),
            _parity(_label(folder, name)),
            f"## Supported options\n\n{table(_options(layer))}",
            documented(cls),
        ]
    )


def _position_page(name, cls, has_picture):
    kind = "attention-position" if hasattr(cls, "rotate") else "embedding-position"
    parts = [f"# {name}", catalog.summary(cls), top("positions", name)]
    if has_picture:
        parts.append(f"![Position encoding]({name}.png)")
        parts.append("Drawn by `plots.position_encoding` for 64 positions; weights, if any, are random.")
    if kind == "attention-position":
        parts.append(facts([("requires", ", ".join(sorted(cls.needs)) or "nothing: it rotates queries and keys")]))
    return "\n\n".join([*parts, _parity(f"{kind}-{name}"), documented(cls)])


def _layer(folder, name):
    if folder == "recurrences":
        return _case(folder, name).make()
    return mechanisms_page.mixer(name, N, 2, 8, WINDOW)


def _case(folder, name):
    return {"mechanisms": cases.MECHANISMS, "mixers": cases.MIXER_LAYERS, "recurrences": cases.RECURRENCES}[folder][
        name
    ]


def _label(folder, name):
    return f"{folder.removesuffix('s')}-{name}"


def _patterns(folder, name):
    """Returns a dict of direction to attention weights, without those that cannot be probed."""
    found = {}
    for direction, word in _DIRECTIONS.items():
        layer, key_dim = _probed(folder, name)
        if direction not in layer.supports:
            continue
        try:
            found[word] = attention_weights(layer, N, causal=direction == "causal", key_dim=key_dim)
        except Exception as error:
            _LOG.warning("%s/%s, %s: no figure: %s", folder, name, word, error)
    return found


def _probed(folder, name):
    """Returns a new layer and the width of a head."""
    if folder == "mechanisms":
        return PARTS[folder][name](**mechanisms_page.arguments(name, N, WINDOW)), 16
    if folder == "mixers":
        return mechanisms_page.mixer(name, N, 1, 16, WINDOW), 16
    return _case(folder, name).make(), _KEY_DIM


def _position_picture(name, cls):
    arguments = _POSITION_ARGUMENTS.get(name, {})
    if "initializer" in signature(cls) and "initializer" not in arguments:
        arguments = arguments | {"initializer": keras.initializers.RandomNormal(stddev=0.3, seed=0)}
    try:
        return _png(plots.position_encoding(cls(**arguments), n=64, width=64), dpi=100)
    except Exception as error:
        _LOG.warning("positions/%s: no figure: %s", name, error)


def _caption(folder):
    probed = "one-hot values" if folder == "mechanisms" else "a change of each token in turn"
    return (
        f"*Attention pattern: rows are {N} queries, columns are {N} keys; bright is a large weight, black is zero, and each"
        f" row has its own scale. Found by probing with {probed}, with random tokens.*"
    )


def _positions(folder, name, layer):
    found = (
        mechanisms_page.positions_of(name, layer.supports)
        if folder != "recurrences"
        else "none: recurrent layers have order"
    )
    known = PARTS["positions"]
    return ", ".join(link(each, "positions", folder) if each in known else each for each in found.split(", "))


def _combines():
    residuals = ", ".join(f"`{name}`" for name in blocks.RESIDUALS)
    feedforwards = ", ".join(f"`{name}`" for name in feedforward.FEEDFORWARDS)
    return f"every block, with any residual scheme ({residuals}) and any feed-forward ({feedforwards})"


def _options(layer):
    advice = contract._ADVICE
    rows = []
    for what, words in _CAPABILITIES.items():
        yes = what in layer.supports
        rows.append({"option": words, "support": "yes" if yes else f"`ValueError`: {advice[what]}"})
    return [*rows, {"option": "padding, on the right or anywhere", "support": "yes: it does not change the outputs"}]


def _parity(label):
    """Returns the table of the differences of the three files from Keras."""
    found = _PARITY["parity"].get(label)
    heading = "## Export\n\n"
    if not found:
        return heading + "Compared with Keras in all three runtimes by `tests/contract/test_export.py`."
    rows = [
        {"": form, **{name.replace("_", " "): _share(ratio) for name, ratio in ratios.items()}}
        for form, ratios in found.items()
    ]
    versions = ", ".join(f"{package} {version}" for package, version in _PARITY["versions"].items())
    return (
        f"{heading}The largest difference from Keras, relative to the largest value, over several batch sizes and lengths"
        f" ({versions}):\n\n{table(rows)}"
    )


def _share(ratio):
    """Returns a figure as a code span, which is not broken at its hyphen."""
    return f"`{ratio:.1e}`" if ratio else "0"


def _power(exponent):
    return "n" if exponent == 1 else f"n<sup>{exponent:g}</sup>"


def _png(figure, dpi):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
