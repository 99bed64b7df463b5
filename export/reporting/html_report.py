"""The `report.html` of a bundle: its model card, in one self-contained page whose figures are those of the manifest."""

import html
import json
import pathlib
from collections.abc import Mapping, Sequence

from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import TwinRecord
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.target_result import TargetResult
from keras_transformer.export.formats import FORMATS, get_format
from keras_transformer.export.reporting.html_page import (
    bar,
    breakable,
    color_of,
    details,
    format_label,
    format_title,
    page,
    section,
    table,
)
from keras_transformer.export.reporting.html_sections import (
    domain_table,
    known_differences_table,
    preprocessing_table,
    signature_tables,
    size_plot,
)
from keras_transformer.export.reporting.inspection import op_counts
from keras_transformer.export.reporting.load_code import load_code
from keras_transformer.export.reporting.verdict import verdict

FILE = "report.html"
_MOST_OPS = 14
_MOST_OUTPUTS = 6
_LONGEST = 400  # Characters of a value of the metadata.


def write_report(directory: pathlib.Path, manifest: Manifest, title: str) -> None:
    """Writes `report.html`.

    Args:
        directory: `pathlib.Path` of the bundle that is being written.
        manifest: its manifest, without the hashes.
        title: str. Name of the bundle.
    """
    names = [name for name in manifest.artifacts if get_format(name).reports_operations]
    ops = {name: op_counts(directory, manifest, name) for name in names}
    weights = sorted(path.name for path in directory.glob("*.weights"))
    (directory / FILE).write_text(render(manifest, ops, title, weights), encoding="utf-8")


def render(manifest: Manifest, ops: Mapping[str, Mapping[str, int]], title: str, weights: Sequence[str] = ()) -> str:
    """Returns the page.

    Args:
        manifest: a bundle's manifest.
        ops: dict of format to a dict of op to its count.
        title: str. Name of the bundle: the title of the page, unless the metadata has a "name".
        weights: paths in the bundle of the weights that the ONNX files share.

    Returns:
        Self-contained HTML text.
    """
    artifacts = {name: manifest.artifacts[name] for name in FORMATS if name in manifest.artifacts}
    name = str(manifest.metadata.get("name", title))
    sections = [
        _head(manifest, artifacts, name),
        _verdict(manifest),
        _cards(artifacts),
        section("Inputs and outputs", signature_tables(manifest) + preprocessing_table(manifest)),
        section("Load it", _code(load_code(manifest, title, weights))),
        _parity(artifacts, manifest.twin),
        section("What was compared", domain_table(manifest)),
        section("Known differences", known_differences_table(manifest)),
        _scores(artifacts),
        _latencies(artifacts),
        section("Accelerator", _target(manifest)),
        section("About the model", _metadata(manifest.metadata)),
        section("Inside the files", _operations(ops) + details("Versions", _pairs(manifest.versions))),
    ]
    return page(name, "".join(sections))


def _head(manifest: Manifest, artifacts: Mapping[str, ArtifactRecord], name: str) -> str:
    precision = " and ".join(sorted({record.quantization or "float32" for record in artifacts.values()}))
    formats = ", ".join(format_title(each) for each in artifacts)
    date = f" · written on {html.escape(manifest.created[:10])}" if manifest.created else ""
    line = f'<p class="soft">{formats} · {html.escape(precision)}{date}</p>'
    description = manifest.metadata.get("description")
    return f"<h1>{html.escape(name)}</h1>{line}" + (f"<p>{html.escape(description)}</p>" if description else "")


def _verdict(manifest: Manifest) -> str:
    found = verdict(manifest)
    mark = '<span aria-hidden="true">✓ </span>' if found.is_proven else ""
    kind = "verdict" if found.is_proven else "verdict open"
    return f'<div class="{kind}"><b>{mark}{html.escape(found.headline)}</b>{html.escape(found.explanation)}</div>'


def _cards(artifacts: Mapping[str, ArtifactRecord]) -> str:
    cards = []
    for name, record in artifacts.items():
        share = f" · {record.size / record.float_size:.2f} of float" if record.float_size else ""
        first = next(iter((record.milliseconds or {}).items()), None)
        time_line = f"{first[1]:.2f} ms for a call of {html.escape(first[0])}" if first else ""
        files = ", ".join(record.paths)
        cards.append(
            f'<div class="card" style="--own:{color_of(name)}">{format_label(name)}<b>{readable_size(record.size)}</b>'
            f"<small>{html.escape(files)}{share}</small><small>{time_line}</small></div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _code(codes: Mapping[str, str]) -> str:
    parts = [
        details(html.escape(language), f"<pre>{html.escape(code)}</pre>", is_open=index == 0)
        for index, (language, code) in enumerate(codes.items())
    ]
    return "".join(parts)


def _parity(artifacts: Mapping[str, ArtifactRecord], twin: TwinRecord | None = None) -> str:
    """The outputs that use most of what is allowed, of each format."""
    rows, others = [], 0
    for name, record in artifacts.items():
        parity = record.parity or ()
        worst = sorted(parity, key=lambda each: (-each.share, -each.ratio))[:_MOST_OUTPUTS]
        others += len(parity) - len(worst)
        for each in worst:
            output = breakable(f"{each.signature} · {each.output}")
            # Quantized files have other limits.
            used = f"{bar(each.share, name)}{each.share:.0%}" if each.share else "–"
            rows.append([format_label(name), output, f"{each.ratio:.1e}", used])
    if not rows:
        return ""
    note = (
        "The largest difference of each output over all probes, as a share of its scale and of what is allowed there."
    )
    more = f" {others} other outputs use less." if others else ""
    if twin is not None:
        more += f" The model was exported with {', '.join(twin.steps)}: {twin.largest.ratio:.1e} of the scale away."
    unshown = dict.fromkeys(one.output for each in artifacts.values() for one in each.parity or () if one.is_constant)
    if unshown:
        more += f" Constant over all probes, so that nothing was shown: {', '.join(map(html.escape, unshown))}."
    head = ("format", "output", "of scale", "of allowed")
    return section("Difference from Keras", table(head, rows, numbers=(2, 3)), note + more)


def _scores(artifacts: Mapping[str, ArtifactRecord]) -> str:
    """What quantization changes in the task, and in the predictions."""
    found = {name: (each.evaluation or {}) | (each.behavior or {}) for name, each in artifacts.items()}
    found = {name: each for name, each in found.items() if each}
    rows = []
    for key, (label, style) in _MEASURES.items():
        values = [each.get(key) for each in found.values()]
        if any(value is not None for value in values):
            rows.append([label, *("–" if value is None else style.format(value) for value in values)])
    head = ("", *map(format_label, found))
    body = table(head, rows, range(1, len(head))) + size_plot(artifacts) if rows else ""
    return section(
        "Accuracy", body, "Against the float file in the same runtime, measured when the bundle was written."
    )


_MEASURES = {
    "score_float": ("score of the float file", "{:.4g}"),
    "score": ("score", "{:.4g}"),
    "agreement": ("predictions unchanged on the evaluation data", "{:.2%}"),
    "perplexity": ("perplexity, relative to the float file", "{:.4f}"),
    "divergence": ("divergence of the predictions in nats", "{:.4f}"),
    "top_share": ("most likely predictions unchanged", "{:.1%}"),
}


def _latencies(artifacts: Mapping[str, ArtifactRecord]) -> str:
    times = {name: record.milliseconds for name, record in artifacts.items() if record.milliseconds}
    signatures = list(dict.fromkeys(signature for each in times.values() for signature in each))
    rows = [
        [
            html.escape(signature),
            *(f"{each[signature]:.2f} ms" if signature in each else "–" for each in times.values()),
        ]
        for signature in signatures
    ]
    head = ("signature", *map(format_label, times))
    note = "Median of ten calls with the first probe, on the machine that wrote the bundle."
    return section("Latency", table(head, rows, range(1, len(head))) if rows else "", note)


def _target(manifest: Manifest) -> str:
    if manifest.target is None:
        return ""
    return f"<pre>{html.escape(str(TargetResult.from_dict(manifest.target)))}</pre>"


def _metadata(metadata: Mapping[str, object]) -> str:
    rest = {key: value for key, value in metadata.items() if key not in ("name", "description", "inputs")}
    return _pairs({key.replace("_", " "): _shown(value) for key, value in rest.items()}) if rest else ""


def _shown(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ", ".join(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rpartition(',')[0]}, ... ({len(value):,} in all)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _operations(ops: Mapping[str, Mapping[str, int]]) -> str:
    tables = "".join(_op_table(name, each) for name, each in ops.items() if each)
    return details("Operations", f'<div class="two">{tables}</div>') if tables else ""


def _op_table(name: str, counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: -item[1])[:_MOST_OPS]
    rows = [[html.escape(op), str(count), bar(count / most[0][1], name)] for op, count in most]
    more = f"<p><small>and {len(counts) - len(most)} other kinds</small></p>" if len(counts) > len(most) else ""
    return f"<div>{table((format_label(name), '', ''), rows, numbers=(1,))}{more}</div>"


def _pairs(pairs: Mapping[str, object]) -> str:
    return table(("", ""), [[html.escape(name), html.escape(str(value))] for name, value in pairs.items()])
