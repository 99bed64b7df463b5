"""The `report.html` of a bundle: sizes, parity, latency, accuracy by size, ops and versions, in one self-contained page."""

import html
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_transformer.export.formats import FORMATS, get_format
from keras_transformer.export.reporting.html_plots import bar, color_of, parity_plot, size_plot
from keras_transformer.export.reporting.inspection import op_counts
from keras_transformer.export.reporting.report import readable_size

FILE = "report.html"
_MOST_OPS = 14

_STYLE = (
    """
:root{--paper:#fff;--ink:#1c1e21;--soft:#6b7280;--rule:#e5e7eb;--a:#3b6fb6;--b:#2f9e6e;--c:#c2683a;--bad:#c0392b}
@media(prefers-color-scheme:dark){
:root{--paper:#15171a;--ink:#e8e9eb;--soft:#9aa1ab;--rule:#2c3037;--a:#7aa7e0;--b:#6cc9a0;--c:#e39a70}}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;
max-width:760px;margin:48px auto;padding:0 24px}
h1{font-size:26px;font-weight:600;margin:0}h2{font-size:16px;font-weight:600;margin:44px 0 12px}
p{color:var(--soft);margin:4px 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:16px;margin-top:28px}
.card{border:1px solid var(--rule);border-radius:10px;padding:16px 18px;border-top:3px solid var(--own)}
.card b{display:block;font-size:24px;font-weight:600;margin:6px 0 2px}.card small{color:var(--soft);display:block}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:0 32px;align-items:start}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:5px 10px 5px 0;text-align:left;font-weight:400;border-bottom:1px solid var(--rule)}
th{color:var(--soft)}td.n,th.n{text-align:right}
svg{width:100%;height:auto;display:block}text{fill:var(--soft);font-size:11.5px}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.limit{stroke:var(--bad);stroke-dasharray:4 3}
.stem{stroke:var(--soft);opacity:.5}.move{stroke:var(--soft);stroke-dasharray:2 3}
.middle{text-anchor:middle}.end{text-anchor:end}.label{fill:var(--ink)}
.bar{display:block;background:var(--rule);height:8px;border-radius:4px}
.bar span{display:block;height:8px;border-radius:4px}
""".replace("\n", "")
    + "".join(f".legend.{name}{{fill:{color_of(name)}}}" for name in FORMATS)
)


def write_report(directory: pathlib.Path, manifest: dict[str, Any], title: str) -> None:
    """Writes `report.html`.

    Args:
        directory: `pathlib.Path` of the bundle that is being written.
        manifest: its manifest, without the hashes.
        title: str. Name of the exported model.
    """
    names = [name for name in manifest["artifacts"] if get_format(name).reports_operations]
    ops = {name: op_counts(directory, manifest, name) for name in names}
    (directory / FILE).write_text(render(manifest, ops, title), encoding="utf-8")


def render(manifest: dict[str, Any], ops: Mapping[str, Mapping[str, int]], title: str) -> str:
    """Returns the page.

    Args:
        manifest: a bundle's manifest.
        ops: dict of format to a dict of op to its count.
        title: str.

    Returns:
        Self-contained HTML text.
    """
    artifacts = {name: {"tolerance": manifest["tolerance"], **record} for name, record in manifest["artifacts"].items()}
    latencies = {name: record.get("milliseconds", {}) for name, record in artifacts.items()}
    scores = size_plot(artifacts)
    sections = [
        _cards(artifacts, latencies),
        _section(
            "From Keras",
            parity_plot(artifacts),
            "Largest difference of each output over all probes; dashed: what was allowed.",
        ),
        _section("Score against size", scores, "On the evaluation data of the export, in each runtime.")
        if scores
        else "",
        _section(
            "Latency", _latency_table(latencies), "Median of ten calls with the first probe, where the bundle was made."
        ),
        _section(
            "Ops", f'<div class="two">{"".join(_op_table(name, each) for name, each in ops.items() if each)}</div>'
        ),
        _section("Versions", _pairs(manifest["versions"])),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><p>{_summary(manifest)}</p>{''.join(sections)}</html>\n"
    )


def _summary(manifest: dict[str, Any]) -> str:
    modes = {record.get("quantization", "float32") for record in manifest["artifacts"].values()}
    signatures = ", ".join(manifest["signatures"])
    return html.escape(f"{' and '.join(sorted(modes))} · signatures {signatures}")


def _cards(artifacts: dict[str, Any], latencies: dict[str, Any]) -> str:
    cards = []
    for name, record in artifacts.items():
        worst = max((each["ratio"] for each in record["parity"]), default=0.0)
        share = f" · {record['bytes'] / record['float_bytes']:.2f} of float" if "float_bytes" in record else ""
        first = next(iter(latencies.get(name, {}).items()), None)
        time_line = f"{first[1]:.2f} ms a call of {html.escape(first[0])}" if first else ""
        cards.append(
            f'<div class="card" style="--own:{color_of(name)}">{html.escape(name)}<b>{readable_size(record["bytes"])}</b>'
            f"<small>{worst:.1e} of the scale from Keras{share}</small><small>{time_line}</small>{_task(record)}</div>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _task(record: dict[str, Any]) -> str:
    found = record.get("evaluation") or {}
    lines = []
    if found.get("score") is not None:
        lines.append(f"score {found['score']:.4g}, float {found['score_float']:.4g}")
    if found.get("agreement") is not None:
        lines.append(f"{found['agreement']:.2%} of the predictions are unchanged")
    return "".join(f"<small>{line}</small>" for line in lines)


def _section(title: str, body: str, note: str = "") -> str:
    return f"<h2>{title}</h2>{body}" + (f"<p>{note}</p>" if note else "")


def _latency_table(latencies: dict[str, Any]) -> str:
    signatures = list(dict.fromkeys(name for each in latencies.values() for name in each))
    head = "".join(f'<th class="n">{html.escape(name)}</th>' for name in latencies)
    rows = [
        f"<tr><td>{html.escape(signature)}</td>"
        + "".join(
            f'<td class="n">{each[signature]:.2f} ms</td>' if signature in each else '<td class="n">–</td>'
            for each in latencies.values()
        )
        + "</tr>"
        for signature in signatures
    ]
    return f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _op_table(name: str, counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: -item[1])[:_MOST_OPS]
    rows = "".join(
        f'<tr><td style="width:45%">{html.escape(op)}</td><td class="n" style="width:12%">{count}</td>'
        f"<td>{bar(count / most[0][1], name)}</td></tr>"
        for op, count in most
    )
    more = f"<p>and {len(counts) - len(most)} other kinds</p>" if len(counts) > len(most) else ""
    return f"<div><table><tr><th>{html.escape(name)}</th><th></th><th></th></tr>{rows}</table>{more}</div>"


def _pairs(pairs: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>" for name, value in pairs.items()
    )
    return f"<table>{rows}</table>"
