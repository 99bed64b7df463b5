"""The web page of `examples/deploy` in a headless Chromium, in both runtimes, as the Python runtimes compute it.

It runs where playwright, Chromium and the npm packages are: `pip install playwright`, `npm install` in examples/deploy/web.
"""

import importlib.util
import os
import time
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import COUNT, FOLDER, PROMPTS, expected_classes, expected_tokens, model

from keras_transformer.export import load

pytestmark = pytest.mark.slow
MODULES = Path(os.environ.get("KERAS_TRANSFORMER_NODE_MODULES", FOLDER / "web" / "node_modules"))


def script(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(deploy_bundles, tmp_path_factory):
    """The open page; `page.failed` lists its errors, and `page.asked` the addresses that it asked for."""
    playwright, measure = pytest.importorskip("playwright.sync_api"), script(FOLDER.parent / "web" / "measure.py")
    if measure.CHROMIUM is None:
        pytest.skip("no Chromium")
    if not all((MODULES / name).is_dir() for name in ("onnxruntime-web", "@litertjs/core")):
        pytest.skip("no onnxruntime-web or @litertjs/core: npm install in examples/deploy/web")
    site = tmp_path_factory.mktemp("deploy_web") / "site"
    script(FOLDER / "web" / "build.py").build(deploy_bundles, MODULES, site)
    with (
        measure.served(site) as address,
        playwright.sync_playwright() as driver,
        measure.browsing(driver) as browser,
    ):
        page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        page.failed, page.asked = [], []
        page.on("pageerror", lambda error: page.failed.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        wait(page)
        yield page
        assert page.failed == []
        assert all(url.startswith((address, "data:", "blob:")) for url in page.asked)


def wait(page, seconds=120):
    """Returns when the page is ready."""
    end = time.perf_counter() + seconds
    time.sleep(0.1)
    while (state := page.inner_text("#state")) != "Ready.":
        assert not state.startswith("Error"), state
        assert time.perf_counter() < end, state
        time.sleep(0.05)


def continued(page, prompt):
    """The token ids with which the page continues a text."""
    page.fill("#text", prompt)
    page.fill("#count", str(COUNT))
    page.click("#continue")
    wait(page)
    return page.evaluate("page.tokens")


@pytest.mark.parametrize(("value", "backend"), [("onnx", "onnx"), ("litert", "tflite")])
def test_answers_are_those_of_the_python_runtime(page, deploy_bundles, value, backend):
    page.check(f"[value={value}]")
    wait(page)
    expected = expected_classes(deploy_bundles, backend)
    found = page.evaluate("page.classes")
    assert [name for name, _ in found] == [name for name, _ in expected]
    np.testing.assert_allclose([each for _, each in found], [each for _, each in expected], atol=1e-5)
    name, probability = expected[0]
    assert page.inner_text("#classes li").split() == [name, f"{100 * probability:.1f}", "%"]
    for prompt, tokens in zip(PROMPTS, expected_tokens(deploy_bundles, backend), strict=True):
        assert continued(page, prompt) == tokens
        assert page.input_value("#text") == prompt + model(deploy_bundles, backend).tokenizer.decode(tokens)


def test_an_image_of_another_kind(page, deploy_bundles, tmp_path):
    """A PNG of another size is drawn into the pixels that the model takes."""
    image = pytest.importorskip("PIL.Image").new("RGB", (16, 16), (255, 0, 0))
    image.save(tmp_path / "red.png")
    page.set_input_files("#file", tmp_path / "red.png")
    wait(page)
    pixels = np.full((1, 8, 8, 1), 0.299 * 255, "float32")
    expected = load(deploy_bundles / "classifier", "onnx")(images=pixels)["probabilities"][0]
    found = dict(page.evaluate("page.classes"))
    np.testing.assert_allclose([found[str(index)] for index in range(10)], expected, atol=1e-3)


def test_both_models_on_webgpu(page, deploy_bundles):
    """On Chromium's software GPU: its own browser, since the other one has no GPU.

    The decoder is that of `decoder_gpu`, in fixed shapes; its tokens are those of Keras and of the CPU.
    """
    flags = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]
    driver = page.context.browser.browser_type
    browser = driver.launch(executable_path=script(FOLDER.parent / "web" / "measure.py").CHROMIUM, args=flags)
    said = []
    try:
        other = browser.new_page()
        other.on("console", lambda message: said.append(message.text))
        other.goto(page.url)
        wait(other)
        if not other.evaluate("(async () => !!(await navigator.gpu?.requestAdapter()))()"):
            pytest.skip("this Chromium has no WebGPU")
        other.check("[value=webgpu]")
        wait(other)
        found = dict(other.evaluate("page.classes"))
        tokens = [continued(other, prompt) for prompt in PROMPTS]
    finally:
        browser.close()
    expected = dict(expected_classes(deploy_bundles, "tflite"))
    np.testing.assert_allclose([found[name] for name in expected], list(expected.values()), atol=1e-4)
    assert tokens == expected_tokens(deploy_bundles, "tflite")
    assert sum("will run on the GPU" in line for line in said) > 1
    assert load(deploy_bundles / "decoder_gpu", "tflite").generate(PROMPTS[0], max_new_tokens=COUNT) == model(
        deploy_bundles, "tflite"
    ).tokenizer.decode(tokens[0])


def test_it_fits_a_phone(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
