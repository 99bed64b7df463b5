"""Measures the loading time of the page in a headless Chromium with an empty cache.

    pip install playwright                                         # and Chromium, from the system or from playwright
    python examples/web/measure.py --site site

For an unlimited connection and for a simulated phone: the transferred bytes, the seconds from navigation to the first
answer to a drawing and to the first generated token (both requested as soon as possible), the milliseconds per answer and
per token after warm-up, and those per frame while drawing (16.7 are 60 frames a second). The best of several visits is
reported, because other load only adds time.
"""

import argparse
import contextlib
import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
# Bits per second, round-trip time in milliseconds, and CPU slowdown. The phone has the values of "fast 4G" and of a
# mid-tier phone in Chromium's developer tools.
VISITORS = {"this machine": None, "phone, 4G": {"bits": 9e6, "delay": 60, "slower": 4}}
# Decimals of each column.
COLUMNS = {"bytes": 0, "digit s": 2, "text s": 2, "digit ms": 1, "token ms": 1, "frame ms": 1}
ANSWERS = 20
TOKENS = 60
FRAMES = 120
_FIRST_ANSWER = """async () => {
  const until = async (holds) => { while (!holds()) await new Promise((wake) => setTimeout(wake, 5)); };
  await until(() => window.page);
  page.digits.strokes.push([{ x: 160, y: 60 }, { x: 160, y: 260 }]);
  page.digits.draw();
  await until(() => page.digits.last);
  const digit = performance.now();
  const text = document.getElementById("text");
  const before = text.value.length;
  await until(() => page.ready);
  document.getElementById("count").value = 1;
  document.getElementById("continue").click();
  await until(() => text.value.length > before);
  return [digit / 1000, performance.now() / 1000];
}"""
_WARM = """async ([answers, tokens, frames]) => {
  const start = performance.now();
  for (let index = 0; index < answers; index++) {
    await page.digits.compute();
  }
  const between = performance.now();
  await page.text.continue(tokens, 0.8);
  const token = (performance.now() - between) / tokens;
  // A long stroke, with a point in every frame.
  const stroke = [];
  page.digits.strokes = [stroke];
  const begin = await new Promise(requestAnimationFrame);
  let last = begin;
  for (let index = 0; index < frames; index++) {
    stroke.push({ x: 160 + 130 * Math.sin(index / 7), y: 160 + 130 * Math.cos(index / 11) });
    page.digits.draw();
    last = await new Promise(requestAnimationFrame);
  }
  return [(between - start) / answers, token, (last - begin) / frames];
}"""


def main() -> None:
    arguments = parse_arguments()
    from playwright.sync_api import sync_playwright

    print(f"{'':14}" + "".join(f"{name:>14}" for name in COLUMNS))
    with served(arguments.site) as address, sync_playwright() as driver, browsing(driver) as browser:
        for name, limits in VISITORS.items():
            visits = [visit(browser, address, limits) for _ in range(arguments.times)]
            figures = zip(map(min, zip(*visits, strict=True)), COLUMNS.values(), strict=True)
            print(f"{name:14}" + "".join(f"{value:>14,.{decimals}f}" for value, decimals in figures))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, default=Path("site"), help="page written by build.py")
    parser.add_argument("--times", type=int, default=5, help="visits per connection")
    return parser.parse_args()


def visit(browser: Any, address: str, limits: dict[str, float] | None) -> list[float]:
    """Returns the figures of one visit, in the order of `COLUMNS`."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, service_workers="block")
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    loaded = []
    network.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))
    if limits:
        throttle(network, **limits)
    page.goto(address, wait_until="commit")
    first = page.evaluate(_FIRST_ANSWER)
    total = sum(loaded)
    warm = page.evaluate(_WARM, [ANSWERS, TOKENS, FRAMES])
    context.close()
    return [total, *first, *warm]


def throttle(network: Any, bits: float, delay: float, slower: float) -> None:
    limits = {"offline": False, "latency": delay, "downloadThroughput": bits / 8, "uploadThroughput": bits / 8}
    network.send("Network.emulateNetworkConditions", limits)
    network.send("Emulation.setCPUThrottlingRate", {"rate": slower})


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves a folder on a free port; yields the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def browsing(driver: Any) -> Iterator[Any]:
    """Yields a headless Chromium: that of the system, or else of playwright."""
    browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    try:
        yield browser
    finally:
        browser.close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    main()
