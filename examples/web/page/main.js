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
  const digits = filesOf(models.digits);
  const text = digits.then(() => filesOf(models.text));  // Loads while the digits model is initialized.
  await page.digits.open(await digits);
  await page.text.open(await text);
  page.ready = true;
  state.textContent = `Ready after ${((performance.now() - start) / 1000).toFixed(1)} s.`;
  if ("serviceWorker" in navigator) {
    await navigator.serviceWorker.register("service-worker.js");
    await navigator.serviceWorker.ready;
    state.textContent += " It works without a network from now on.";
  }
}

begin().catch((error) => {
  state.textContent = `Something failed: ${error.message}`;
});
