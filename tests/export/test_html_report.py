"""`report.html` shows the figures of the manifest."""

import re
from html.parser import HTMLParser

import pytest
from hand_made import manifest_of, spec

from keras_transformer.export.reporting.html_report import render
from keras_transformer.export.reporting.html_sections import size_plot
from keras_transformer.export.reporting.verdict import verdict

PARITY = [
    {"signature": "serve", "output": "logits", "difference": 2e-3, "scale": 2.0, "ratio": 1e-3, "share": 0.25},
    {"signature": "serve", "output": "<b>", "difference": 0.0, "scale": 1.0, "ratio": 0.0, "share": 0.0},
]
EVALUATION = {"score_float": 0.8, "score": 0.7, "agreement": 0.9}


def described(metadata=None, **record):
    artifact = {
        "signatures": {"serve": "model.onnx"},
        "bytes": 1_500_000,
        "parity": PARITY,
        "milliseconds": {"serve": 1.25},
    }
    inputs, outputs = [spec("images", "float32", "batch", 8, 8, 1)], [spec("logits", "float32", "batch", 10)]
    return {
        "signatures": {"serve": {"inputs": inputs, "outputs": outputs}},
        "created": "2026-11-27T20:38:35Z",
        "tolerance": 1e-3,
        "versions": {"keras": "3.15.1"},
        "artifacts": {"onnx": {**artifact, **record}},
        "metadata": metadata or {},
    }


def card(metadata=None, **record):
    return manifest_of(described(metadata, **record))


class Page(HTMLParser):
    """The texts of a page and the rows of its tables; raises if tags are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.rows, self.addresses, self.text = [], [], [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag in ("meta", "br", "wbr"):
            return
        self.open.append(tag)
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_the_page_shows_the_figures():
    page = Page(render(card(), {"onnx": {"MatMul": 12, "Add": 3}}, "digits"))
    assert page.text.split()[0] == "digits"
    for text in ("ONNX · float32 · written on 2026-11-27", "1.5 MB", "1.25 ms for a call of serve"):
        assert text in page.text, text
    assert ["input", "images", "float32", "(batch, 8, 8, 1)"] in page.rows
    assert ["output", "logits", "float32", "(batch, 10)"] in page.rows
    assert ["ONNX", "serve · logits", "1.0e-03", "25%"] in page.rows
    assert ["MatMul", "12", ""] in page.rows
    assert ["keras", "3.15.1"] in page.rows
    assert "Accuracy" not in page.text


def test_it_loads_nothing_and_needs_no_script():
    page = Page(render(card(), {}, "digits"))
    assert page.addresses == []
    assert "script" not in page.tags
    assert not re.search(r"url\(|@import|https?:", render(card(), {}, "digits"))


def test_names_are_escaped():
    name = '<script>alert("x")</script>'
    record = described({"name": name, "description": name, "class_names": [name], name: name})
    record["signatures"] = {name: {"inputs": [spec(name, "float32", name)], "outputs": [spec(name, "float32", 2)]}}
    record["artifacts"]["onnx"] |= {"signatures": {name: name}, "milliseconds": {name: 1.0}, "quantization": name}
    record["artifacts"]["onnx"]["parity"] = [PARITY[0] | {"signature": name, "output": name}]
    record |= {"versions": {name: name}, "created": name}
    page = Page(render(manifest_of(record), {"onnx": {name: 1}}, name, [name]))
    assert "script" not in page.tags
    assert page.text.count(name) > 10


def test_a_bundle_of_before_has_no_date():
    record = described()
    del record["created"]
    assert "written on" not in render(manifest_of(record), {}, "digits")


def test_copies_for_fixed_shapes_and_the_cache_are_folded():
    record = described()
    cache = spec("block_0_key", "float32", "batch", "cache_length", 2, 4)
    step = {
        "inputs": [spec("token_ids", "int32", "batch", 1), cache],
        "outputs": [spec("logits", "float32", "batch", 9)],
    }
    record["signatures"] = {"decode": step, "decode_1": step, "serve_2": record["signatures"]["serve"]}
    record["artifacts"]["onnx"]["signatures"] = dict.fromkeys(record["signatures"], "model.onnx")
    record["generation"] = {"cache": ["block_0_key"], "is_encoder_decoder": False, "source_shape": None}
    page = Page(render(manifest_of(record), {}, "language"))
    assert "1 copies for fixed shapes" in page.text  # serve_2 is no copy: there is no serve.
    assert page.text.count("1 inputs and outputs of the state") == 2


@pytest.mark.parametrize(
    "change, headline, is_proven",
    [
        ({}, "Proven equal in ONNX Runtime", True),
        ({"quantization": "int8"}, "Quantized to int8, within limits in ONNX Runtime", True),
        ({"parity": []}, "Not run", False),
    ],
)
def test_the_verdict_is_what_was_measured(change, headline, is_proven):
    found = verdict(card(**change))
    assert (found.headline, found.is_proven) == (headline, is_proven)
    assert headline in Page(render(card(**change), {}, "digits")).text


def test_the_verdict_counts_the_runtimes_and_names_what_was_not_run():
    record = described()
    onnx = record["artifacts"]["onnx"]
    record["artifacts"] = {"saved_model": onnx, "tflite": onnx, "onnx": onnx}
    found = verdict(manifest_of(record))
    assert found.headline == "Proven equal in 3 runtimes"
    assert "no output differs by more than rounding explains" in found.explanation
    assert "1.0e-03 of an output's scale, 25% of what is allowed there" in found.explanation
    assert "more than 2e-02 of its scale" in verdict(manifest_of(record | {"tolerance": 0.02})).explanation
    record["artifacts"]["tflite"] = onnx | {"parity": []}
    found = verdict(manifest_of(record))
    assert (found.headline, found.is_proven) == ("Proven equal in 2 runtimes", False)
    assert found.explanation.endswith("TFLite was not run.")


def circles(svg):
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]


def levels(svg):
    """The labels of the axis of scores, from below."""
    return [float(text) for text in re.findall(r'class="end"[^>]*>([^<]+)<', svg)]


def test_a_quantized_file_lies_left_of_its_float_file_and_below_when_it_is_worse():
    record = card(float_bytes=6_000_000, quantization="int8", evaluation=EVALUATION).artifact("onnx")
    (x_float, y_float), (x_small, y_small), _ = circles(size_plot({"onnx": record}))
    assert y_small > y_float
    assert abs((x_small - 52) / (x_float - 52) - 0.25) < 0.01
    page = Page(render(card(float_bytes=6_000_000, quantization="int8", evaluation=EVALUATION), {}, "x"))
    assert "0.25 of float" in page.text
    assert ["predictions unchanged on the evaluation data", "90.00%"] in page.rows
    assert "90.00% of the predictions on the evaluation data are unchanged" in page.text


def test_small_differences_of_scores_look_small():
    """The axis spans a tenth of the score at least, says where it begins, and ends at 1."""
    evaluation = {"score_float": 0.99, "score": 0.985, "agreement": 1.0}
    record = card(float_bytes=6_000_000, quantization="int8", evaluation=evaluation).artifact("onnx")
    plot = size_plot({"onnx": record})
    low, _, high = levels(plot)
    assert high == 1.0
    assert low == pytest.approx(0.901, abs=1e-3)
    assert "The scale of scores begins at 0.901, not at 0." in plot
