"""The page in a real browser, on a phone's screen: what is drawn and written is computed as Python computes it.

It runs where playwright, Chromium and onnxruntime-web are: `pip install playwright`, `npm install` in examples/web.
"""

import contextlib
import gzip
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import attention_maps
from keras_transformer.export import ExportError, load

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples" / "web"
MODULES = Path(os.environ.get("KERAS_TRANSFORMER_NODE_MODULES", FOLDER / "node_modules"))
CHARACTERS = "\n abcdefghijklmnopqrstuvwxyz"
WORDS = "the model reads the words and the words read the model, wörter " * 4
MAX_LENGTH = 24
EXPORT = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import keras, numpy as np
import digits
from keras_transformer import models, tasks, text
from keras_transformer.export import ExportOptions, GenerationOptions, export
keras.utils.set_random_seed(0)
known = {{"largest_distance": 1e3}}  # Everything is a digit.
examples = np.random.default_rng(0).uniform(0, 16, (3, 8, 8, 1)).astype("float32")
options = ExportOptions(metadata=known)
export(digits.with_attention(digits.build_model(), examples), sys.argv[1] + "/digits", ["onnx"], options=options)
backbone = models.Decoder(models.Size(1, 16, 2, 24), {len(CHARACTERS) + 5}, max_sequence_length={MAX_LENGTH})
model = tasks.LanguageModel(backbone, tokenizer=text.Characters({CHARACTERS!r}))
random = np.random.default_rng(0)
for weight in model.weights:
    weight.assign(random.normal(0, 0.5, weight.shape) + (len(weight.shape) == 1) * np.asarray(weight))
export(model, sys.argv[1] + "/text", formats=["onnx"])
tokenizer = text.BytePair.train([{WORDS!r}], 300)
backbone = models.Decoder(models.Size(1, 16, 2, 24), tokenizer.vocabulary_size, max_sequence_length={MAX_LENGTH})
model = tasks.LanguageModel(backbone, tokenizer=tokenizer)
for weight in model.weights:
    weight.assign(random.normal(0, 0.5, weight.shape) + (len(weight.shape) == 1) * np.asarray(weight))
export(model, sys.argv[1] + "/words", ["onnx"], options=ExportOptions(generation=GenerationOptions(whole_graph=False)))
"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    words = [sys.executable, "-c", EXPORT, str(folder)]
    process = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr[-3000:]
    return folder


def script(name):
    """A script of the example, as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_web", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def builder():
    return script("build")


def test_the_rollout_goes_from_the_first_block_to_the_last():
    digits = script("digits")
    model = digits.build_model()
    images = np.random.default_rng(0).uniform(0, 16, (2, 8, 8, 1)).astype("float32")
    maps = {path: np.asarray(scores) for path, scores in attention_maps(model)(images).items()}
    expected = np.eye(65)
    for index in range(3):
        (scores,) = (scores for path, scores in maps.items() if f"encoder_block_{index}/" in path)
        expected = (scores.mean(1) + np.eye(65)) / 2 @ expected
    _, attention = digits.Explained(model)(images)
    np.testing.assert_allclose(attention, expected[:, 0, 1:].reshape(2, 8, 8), rtol=1e-5)


def test_scribbles_have_the_pixels_of_the_page():
    digits = script("digits")
    strokes = digits.scribble(np.random.default_rng(0))
    points = [[{"x": 300 * x, "y": 300 * y} for x, y in stroke] for stroke in strokes]
    np.testing.assert_array_equal(digits.pixels(strokes)[..., 0], rasterized(points))
    images = digits.scribbles(3, seed=0)
    assert images.shape == (3, 8, 8, 1)
    np.testing.assert_array_equal(images[0], digits.pixels(strokes))


def test_the_distance_is_that_to_the_nearest_example():
    digits = script("digits")
    examples = np.zeros((2, 8, 8, 1), "float32")
    examples[1, 0] = 3
    images = np.zeros((2, 8, 8, 1), "float32")
    images[0, 0, 0], images[1, 0] = 4, 2
    expected = [4, 8**0.5]
    np.testing.assert_allclose(digits.distances(examples, images), expected)
    np.testing.assert_allclose(digits.Distance(examples)(images), expected, rtol=1e-6)


def fake_modules(folder, builder):
    """What npm leaves, as far as the build looks at it."""
    for name in (*builder.RUNTIME, builder.BINARY):
        path = folder / "onnxruntime-web" / "dist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.mark.exhaustive
def test_the_folder_is_replaced_whole_or_not_at_all(bundles, builder, tmp_path):
    modules, out = fake_modules(tmp_path / "modules", builder), tmp_path / "site"
    builder.build(bundles / "digits", bundles / "text", modules, out)
    before = (out / "service-worker.js").read_text()
    kept = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
    assert all(f'"{name}"' in before for name in kept if name != "service-worker.js")
    assert "FINGERPRINT" not in before
    packed = {path.name: gzip.decompress(path.read_bytes()) for path in out.rglob("*.packed")}
    assert packed["model.onnx.packed"] == (bundles / "digits" / "model.onnx").read_bytes()
    assert packed[builder.BINARY + ".packed"] == builder.BINARY.encode()
    with pytest.raises(ExportError, match="no signature 'serve'"):
        builder.build(bundles / "text", bundles / "text", modules, out)
    with pytest.raises(ExportError, match="no signature 'decode'"):
        builder.build(bundles / "digits", bundles / "digits", modules, out)
    with pytest.raises(OSError, match=r"ort\.wasm"):
        builder.build(bundles / "digits", bundles / "text", tmp_path / "none", out)
    assert (out / "service-worker.js").read_text() == before
    (out / "service-worker.js").unlink()
    with pytest.raises(OSError, match="holds something else"):
        builder.build(bundles / "digits", bundles / "text", modules, out)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["modules", "site"]


@pytest.fixture(scope="module")
def visit(bundles, builder, tmp_path_factory):
    """The page, open and ready; what it asked for; what went wrong; its address; and what ends its server."""
    playwright, measure = pytest.importorskip("playwright.sync_api"), script("measure")
    if measure.CHROMIUM is None:
        pytest.skip("no Chromium")
    if not (MODULES / "onnxruntime-web").is_dir():
        pytest.skip("no onnxruntime-web: npm install in examples/web")
    site = tmp_path_factory.mktemp("web") / "site"
    builder.build(bundles / "digits", bundles / "text", MODULES, site)
    with contextlib.ExitStack() as server, playwright.sync_playwright() as driver, measure.browsing(driver) as browser:
        address = server.enter_context(measure.served(site))
        context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
        page, asked, failed = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on("console", lambda message: failed.append(message.text) if message.type == "error" else None)
        page.goto(address)
        wait(page, "window.page && window.page.ready")
        yield page, asked, failed, address, server.close


@pytest.mark.exhaustive
def test_what_a_visitor_waits_for(visit):
    """A visit with an empty cache loads each file of the page once."""
    page, asked, _, address, _ = visit
    figures = dict(
        zip(script("measure").COLUMNS, script("measure").visit(page.context.browser, address, None), strict=True)
    )
    sizes = {url: len(page.request.get(url).body()) for url in asked if url.startswith(address)}
    assert figures["bytes"] == pytest.approx(sum(sizes.values()), rel=0.01)
    assert 0 < figures["digit s"] <= figures["text s"]


def wait(page, condition, seconds=60):
    """Returns when it holds; the page's own rules allow no evaluated code, which playwright's way of waiting is."""
    end = time.perf_counter() + seconds
    while not page.evaluate(condition):
        assert time.perf_counter() < end, page.inner_text("#state")
        time.sleep(0.02)


STROKES = {
    "seven": [[(90, 70), (230, 70), (150, 260)], [(120, 160), (200, 160)]],
    "small one": [[(40, 40), (42, 75)]],
    "dot": [[(160, 160)]],
}


def draw(page, strokes):
    """Strokes of the mouse, in the canvas's own units; returns the points that it took."""
    page.click("#clear")
    draw_strokes(page, strokes)
    return answered(page)


def draw_strokes(page, strokes):
    page.locator("#drawing").scroll_into_view_if_needed()
    box = page.locator("#drawing").bounding_box()
    scale = box["width"] / 320
    for stroke in strokes:
        places = [(box["x"] + x * scale, box["y"] + y * scale) for x, y in stroke]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place, steps=6)
        page.mouse.up()


def answered(page):
    wait(page, "!window.page.digits.running && !window.page.digits.asked")
    names = "['pixels', 'logits', 'attention']"
    arrays = f"Object.fromEntries({names}.map(name => [name, Array.from(page.digits.last?.[name] ?? [])]))"
    return page.evaluate(f"() => ({{strokes: page.digits.strokes, distance: page.digits.last?.distance, ...{arrays}}})")


def rasterized(strokes):
    """`strokes.js` once more, in numpy."""
    points = np.array([(point["x"], point["y"]) for stroke in strokes for point in stroke])
    low, high = points.min(0), points.max(0)
    scale = min((np.array([26, 32]) - 4.4) / np.maximum(high - low, 20))
    offset = 16 - scale * (low + high) / 2
    columns, rows = np.meshgrid(np.arange(32) + 0.5, np.arange(32) + 0.5)
    pixels = np.stack([columns, rows], -1)
    dots = np.zeros((32, 32), bool)
    for stroke in strokes:
        line = np.array([(point["x"], point["y"]) for point in stroke]) * scale + offset
        for begin, end in zip(line, [*line[1:], line[-1]], strict=True):
            way = end - begin
            along = np.clip(((pixels - begin) @ way) / max(way @ way, 1e-12), 0, 1)[..., None]
            dots |= ((pixels - begin - along * way) ** 2).sum(-1) <= 2.2**2
    return dots.reshape(8, 4, 8, 4).sum((1, 3))


def check_drawing(bundles, found):
    pixels = np.array(found["pixels"]).reshape(8, 8)
    assert np.abs(pixels - rasterized(found["strokes"])).max() <= 1  # A dot at the very edge may fall either way.
    expected = load(bundles / "digits")(images=pixels[None, ..., None].astype("float32"))
    np.testing.assert_allclose(found["logits"], expected["logits"][0], atol=1e-4)
    np.testing.assert_allclose(found["attention"], expected["attention"][0].ravel(), atol=1e-4)
    np.testing.assert_allclose(found["distance"], expected["distance"][0], rtol=1e-5)


def test_drawn_digits(visit, bundles):
    page = visit[0]
    for strokes in STROKES.values():
        found = draw(page, strokes)
        assert len(found["strokes"]) == len(strokes)
        assert sum(found["pixels"]) > 10
        check_drawing(bundles, found)
        best = int(np.argmax(found["logits"]))
        assert page.inner_text("#answer").startswith(f"{best}, ")
    colored = (
        "document.getElementById('attention').getContext('2d').getImageData(0, 0, 320, 320).data.some(each => each)"
    )
    assert page.evaluate(colored)
    page.uncheck("#overlay")
    assert not page.evaluate(colored)
    page.check("#overlay")
    page.click("#clear")
    assert answered(page)["pixels"] == []
    assert page.inner_text("#answer") == "Nothing drawn yet: draw a digit from 0 to 9."


def test_a_scribble_is_no_digit(visit):
    """Farther away from the images of the training than a digit, a drawing has no class."""
    page = visit[0]
    best = np.argmax(draw(page, STROKES["seven"])["logits"])
    distance = page.evaluate("page.digits.last.distance")
    for largest, text in (
        (distance + 1e-3, f"{best}, "),
        (distance - 1e-3, f"Not like a digit; the likeliest is {best}."),
    ):
        page.evaluate(f"page.digits.model.largestDistance = {largest}; page.digits.draw()")
        answered(page)
        assert page.inner_text("#answer").startswith(text)
    assert page.evaluate("document.querySelectorAll('#bars .best').length") == 0
    page.evaluate("page.digits.model.largestDistance = 1e3")


def test_it_says_why_there_is_no_answer(visit):
    """While the model loads, when it cannot be loaded, and when there is no text."""
    page, _, failed, address, _ = visit
    other = page.context.browser.new_page(service_workers="block")
    other.route("**/digits/*.onnx.packed", lambda route: route.abort())
    other.goto(address, wait_until="commit")
    wait(other, "document.getElementById('state')?.textContent.includes('Something could not be loaded')")
    assert other.inner_text("#answer") == "The model could not be loaded: drawings get no answer."
    assert other.inner_text("#pace") == "The model could not be loaded: texts are not continued."
    held = []
    other.unroute("**/digits/*.onnx.packed")
    other.route("**/digits/*.onnx.packed", lambda route: held.append(route))
    other.goto(address, wait_until="commit")
    wait(other, "window.page")
    draw_strokes(other, STROKES["seven"])
    wait(other, "document.getElementById('answer').textContent.includes('still loading: the answer comes by itself')")
    wait_for_route(other, held)
    wait(other, "window.page.ready")
    answered(other)
    assert re.match(r"\d, \d+ % sure", other.inner_text("#answer"))
    other.fill("#text", "")
    other.click("#continue")
    assert other.inner_text("#pace") == "Write a few words first: the model continues them."
    other.close()
    assert failed == []


def wait_for_route(page, held):
    """Lets the requests through that a route has held back."""
    end = time.perf_counter() + 60
    while not held and time.perf_counter() < end:
        page.wait_for_timeout(20)
    for route in held:
        route.continue_()


def test_a_digit_drawn_by_keyboard(visit, bundles):
    page = visit[0]
    page.click("#clear")
    page.focus("#drawing")
    for key in ["ArrowUp"] * 5 + [" "] + ["ArrowDown"] * 12 + [" "] + ["ArrowLeft"] * 3 + [" "] + ["ArrowRight"] * 6:
        page.keyboard.press(key)
    found = answered(page)
    assert [len(stroke) for stroke in found["strokes"]] == [13, 7]
    assert found["strokes"][0][0] == {"x": 160, "y": 120}
    assert found["strokes"][0][-1] == {"x": 160, "y": 216}
    check_drawing(bundles, found)
    page.keyboard.press("Escape")
    assert answered(page)["strokes"] == []


def write(page, text, count):
    """Has the page continue a text at temperature 0; returns what it added and the tokens that it read."""
    page.fill("#text", text)
    return go_on(page, count)


def go_on(page, count):
    before, text = page.evaluate("page.text.tokensRead"), page.input_value("#text")
    page.fill("#count", str(count))
    page.fill("#temperature", "0")
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    wait(page, "!page.text.going")
    now = page.input_value("#text")
    assert now.startswith(text)
    return now.removeprefix(text), page.evaluate("page.text.tokensRead") - before


def test_a_text_goes_on_as_in_python_and_nothing_is_read_twice(visit, bundles):
    page, model = visit[0], load(bundles / "text")
    expected = model.generate("to be or", max_new_tokens=16, stop=None)
    first, read = write(page, "to be or", 6)
    assert first == expected[:6]
    assert read == 8 + 5
    second, read = go_on(page, 5)
    assert first + second == expected[:11]
    assert read == 5
    # Another end: what stands before it is still in the cache.
    third, read = write(page, "to be or " + first[:0] + "me", 3)
    assert third == model.generate("to be or me", max_new_tokens=3, stop=None)
    assert read <= 11 - 8 + 2
    logits = page.evaluate("page.text.next(page.text.tokenizer.encode('or not')).then(found => Array.from(found))")
    ids = np.array([model.tokenizer.encode("or not")], "int32")
    output, _ = model.steps.prefill(ids, [ids.size], model.steps.init_cache(1, MAX_LENGTH))
    np.testing.assert_allclose(logits, output.logits[0, -1], atol=1e-4)


def test_a_text_goes_on_in_parts_of_words(visit, bundles, builder, tmp_path):
    model = load(bundles / "words")
    builder.build(bundles / "digits", bundles / "words", MODULES, tmp_path / "site")
    with script("measure").served(tmp_path / "site") as address:
        page = visit[0].context.browser.new_page(service_workers="block")
        page.goto(address)
        wait(page, "window.page && window.page.ready")
        added, read = write(page, "the wörter", 8)
        assert page.inner_text("#unit") == "parts of words"
        assert added == model.generate("the wörter", max_new_tokens=8, stop=None)
        assert read == len(model.tokenizer.encode("the wörter")) + 7
        page.close()


def test_a_text_longer_than_the_cache(visit, bundles):
    """It goes on with the last half; what comes then is what follows that half."""
    page, model = visit[0], load(bundles / "text")
    added, read = write(page, "a long text", 30)
    assert len(added) == 30
    whole = "a long text" + added
    assert whole[:MAX_LENGTH] == "a long text" + model.generate("a long text", max_new_tokens=13, stop=None)
    half = whole[MAX_LENGTH + 1 - 12 : MAX_LENGTH + 1]
    assert whole[MAX_LENGTH + 1 :][:12] == model.generate(half, max_new_tokens=12, stop=None)
    assert read < 11 + 30 + 2 * 12


def test_a_text_is_stopped(visit):
    page = visit[0]
    page.fill("#text", "stop")
    page.fill("#count", "2000")
    page.click("#continue")
    wait(page, "document.getElementById('text').value.length > 6")
    page.click("#stop")
    wait(page, "!page.text.going")
    assert len(page.input_value("#text")) < 4 + 2000  # Not all that was asked for.
    assert page.is_enabled("#continue")


def test_it_fits_a_phone_asks_no_other_server_and_reports_no_error(visit):
    page, asked, failed, address, _ = visit
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    assert failed == []
    unnamed = "Array.from(document.querySelectorAll('button, input, textarea')).filter(each => "
    assert page.evaluate(unnamed + "!(each.labels?.length || each.textContent.trim())).length") == 0


def test_it_works_without_a_network(visit, bundles):
    """Last: its server ends."""
    page, *_, end_server = visit
    wait(page, "document.getElementById('state').textContent.includes('without a network')")
    end_server()
    page.reload()
    wait(page, "window.page && window.page.ready")
    check_drawing(bundles, draw(page, STROKES["seven"]))
