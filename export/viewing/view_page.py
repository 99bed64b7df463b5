"""The HTML of `keras-transformer view`: the weights of bundles by layer, and attention over an input."""

from __future__ import annotations

import html
import json
import pathlib
from collections.abc import Mapping, Sequence

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.formats import FORMATS, get_format
from keras_transformer.export.reporting.html_page import format_title, page, section
from keras_transformer.export.reporting.verdict import verdict
from keras_transformer.export.viewing.gains import Gains
from keras_transformer.export.viewing.weight_tree import File, WeightTree
from keras_transformer.utils.types import JsonObject, Path

_NOTE = (
    "Open a block for its weights. Constants that a converter made for several blocks stand at the first that uses them; "
    "the rest of a file is its graph: operations, names, and the scales of TFLite files. A SavedModel does not tell the "
    "bytes of its weights by layer. For the operations, open a file in Netron."
)
_SCRIPT = pathlib.Path(__file__).with_name("view.js")


def view_page(bundles: Sequence[Path], gains: Gains | None = None, attention: JsonObject | None = None) -> str:
    """Returns the page.

    Args:
        bundles: paths of bundles of one model, such as a float one and quantized ones; their files are columns.
        gains: what each weight costs in accuracy, or None.
        attention: `attention_record` of an input, or None.

    Returns:
        Self-contained HTML text.

    Raises:
        InvalidBundleError: one of them is no complete bundle.
    """
    manifests = {pathlib.Path(each): read_manifest(each) for each in bundles}
    files = [file for path, manifest in manifests.items() for file in _files(path, manifest, len(manifests) > 1)]
    first = next(iter(manifests))
    name = str(manifests[first].metadata.get("name", first.resolve().name))
    body = [f"<h1>{html.escape(name)}</h1>", *(_verdict(path, each) for path, each in manifests.items())]
    if files:
        body.append(section("Weights by layer", WeightTree(files, gains).html(), _NOTE + _gain_note(gains)))
    body.append(_attention(attention))
    return page(name, "".join(body), _SCRIPT.read_text(encoding="utf-8") if attention else "")


def _files(path: pathlib.Path, manifest: Manifest, is_named: bool) -> list[File]:
    """The files of a bundle whose constants are known, if the library that reads them is installed."""
    found = []
    for name in FORMATS:
        if name not in manifest.artifacts:
            continue
        record = manifest.artifact(name)
        try:
            constants = get_format(name).weight_bytes(path, dict(record.signatures))
            if constants is not None:
                title = f"{path.resolve().name} · {format_title(name)}" if is_named else format_title(name)
                found.append(File(title, name, record.size, list(constants)))
        except ImportError:
            continue
    return found


def _verdict(path: pathlib.Path, manifest: Manifest) -> str:
    found = verdict(manifest)
    kind, mark = ("verdict", "✓ ") if found.is_proven else ("verdict open", "")
    small = f"<small>{html.escape(path.resolve().name)}: {html.escape(found.explanation)}</small>"
    return f'<div class="{kind}"><b>{mark}{html.escape(found.headline)}</b>{small}</div>'


def _gain_note(gains: Gains | None) -> str:
    if gains is None:
        return ""
    measure = html.escape(gains.measure)
    return (
        f" Accuracy: what the {measure} gains if this weight alone stays in float, where all are quantized to "
        f"{html.escape(gains.mode)} ({measure} {gains.all_quantized:.2%}); of a block, its most sensitive weight."
    )


def _attention(record: Mapping[str, object] | None) -> str:
    if record is None:
        return ""
    # As text of a script element: nothing in it ends the element.
    data = json.dumps(record, ensure_ascii=False).replace("<", "\\u003c")
    choices = (
        '<p><label>layer <select id="layer"></select></label> <label>head <select id="head"></select></label></p>'
        '<canvas id="picture" hidden></canvas><p id="tokens"></p><p><small id="explained"></small></p>'
        "<noscript>The pictures of attention need JavaScript.</noscript>"
    )
    return section("Attention", f'{choices}<script type="application/json" id="attention">{data}</script>')
