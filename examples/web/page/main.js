// Opens both models; everything that is needed is kept for when there is no network.

import { Digits } from "./digits.js";
import { Text } from "./text.js";

const state = document.getElementById("state");

async function begin() {
  const start = performance.now();
  const models = await (await fetch("models.json")).json();
  const page = { digits: new Digits(models.digits), text: new Text(models.text), ready: false };
  window.page = page;  // For whoever wants to look inside.
  state.textContent = "Loading the models …";
  await page.digits.open();
  await page.text.open();
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
