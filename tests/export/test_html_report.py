"""`report.html` shows the figures of the manifest."""

import re
from html.parser import HTMLParser

from keras_transformer.export.reporting.html_plots import parity_plot, size_plot
from keras_transformer.export.reporting.html_report import render

PARITY = [
    {"signature": "serve", "output": "logits", "difference": 2e-3, "scale": 2.0, "ratio": 1e-3},
    {"signature": "serve", "output": "<b>", "difference": 0.0, "scale": 1.0, "ratio": 0.0},
]


def manifest(**record):
    artifact = {
        "signatures": {"serve": "model.onnx"},
        "bytes": 1_500_000,
        "parity": PARITY,
        "milliseconds": {"serve": 1.25},
    }
    return {
        "signatures": {"serve": {}},
        "tolerance": 1e-2,
        "versions": {"keras": "3.15.1"},
        "artifacts": {"onnx": {**artifact, **record}},
    }


def circles(svg):
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]


class Balance(HTMLParser):
    """Checks that all tags are closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_shows_the_figures_and_is_well_formed():
    page = render(manifest(), {"onnx": {"MatMul": 12, "Add": 3}}, "<script>")
    balance = Balance()
    balance.feed(page)
    assert not balance.open
    for text in ("1.5 MB", "1.0e-03 of the scale", "1.25 ms", "MatMul", ">12<", "3.15.1", "float32"):
        assert text in page, text
    assert "<script>" not in page
    assert "<b>" not in page.split("</style>")[1].replace("<b>1.5 MB", "")
    assert "Score against size" not in page


def test_dots_lie_where_the_scale_says():
    """A logarithmic scale from 1e-9 at 250 to 1 at 664: 1e-3 is at two thirds, zero at the left end."""
    plot = parity_plot({"onnx": manifest()["artifacts"]["onnx"] | {"tolerance": 1e-2}})
    (x, y), (x_zero, y_zero) = circles(plot)
    assert abs(x - (250 + (664 - 250) * 6 / 9)) < 0.1
    assert x_zero == 250
    assert y < y_zero
    limit = float(re.search(r'class="limit" x1="([\d.]+)"', plot)[1])
    assert abs(limit - (250 + (664 - 250) * 7 / 9)) < 0.1


def test_a_quantized_file_lies_left_of_its_float_file_and_below_when_it_is_worse():
    evaluation = {"score_float": 0.8, "score": 0.7, "agreement": 0.9}
    record = manifest(float_bytes=6_000_000, quantization="int8", evaluation=evaluation)["artifacts"]["onnx"]
    (x_float, y_float), (x_small, y_small) = circles(size_plot({"onnx": record}))
    assert y_small > y_float
    assert abs((x_small - 80) / (x_float - 80) - 0.25) < 0.01
    page = render(manifest(float_bytes=6_000_000, quantization="int8", evaluation=evaluation, tolerance=0.3), {}, "x")
    assert "0.25 of float" in page
    assert "90.00% of the predictions are unchanged" in page
    assert "int8" in page
