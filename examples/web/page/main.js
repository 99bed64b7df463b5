// Loads both models and registers the service worker for offline use.

import { Digits } from "./digits.js";
import { filesOf } from "./sessions.js";
import { Text } from "./text.js";

const state = document.getElementById("state");

async function begin() {
  const start = performance.now();
  const models = await (await fetch("models.json")).json();
  const page = { digits: new Digits(models.digits), text: new Text(models.text), ready: false };
  window.page = page;  // For debugging and tests.
  state.textContent = "Loading the models …";
  try {
    const digits = filesOf(models.digits);
    const text = digits.then(() => filesOf(models.text));  // Loads while the digits model is initialized.
    text.catch(() => {});  // Reported below.
    await page.digits.open(await digits);
    await page.text.open(await text);
  } catch (error) {
    if (!page.digits.session) {
      page.digits.fail(error);
    }
    page.text.fail();
    throw error;
  }
  page.ready = true;
  state.textContent = `Ready after ${((performance.now() - start) / 1000).toFixed(1)} s.`;
  if ("serviceWorker" in navigator) {
    await navigator.serviceWorker.register("service-worker.js");
    await navigator.serviceWorker.ready;
    state.textContent += " It works without a network from now on.";
  }
}

if ("DecompressionStream" in window && "WebAssembly" in window) {
  begin().catch((error) => {
    state.textContent = `Something could not be loaded (${error.message}). Reload the page to try again.`;
  });
} else {
  state.textContent = "This browser is too old for the page: it needs WebAssembly and DecompressionStream.";
}
