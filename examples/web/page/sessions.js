// Sessions of onnxruntime-web, whose files lie beside the page.

import * as ort from "./vendor/ort.wasm.min.mjs";

ort.env.wasm.wasmPaths = new URL("./vendor/", import.meta.url).href;
ort.env.wasm.numThreads = 1;  // More need headers that a static server does not send.

export const Tensor = ort.Tensor;

export async function openSession(model) {
  const [graph, ...weights] = await Promise.all([model.file, ...model.weights].map(bytesOf));
  const externalData = model.weights.map((path, index) => ({ path: path.split("/").pop(), data: weights[index] }));
  return ort.InferenceSession.create(graph, { executionProviders: ["wasm"], externalData, logSeverityLevel: 3 });
}

async function bytesOf(path) {
  const response = await fetch(path);
  if (!response.ok) {
    throw new Error(`${path}: ${response.status}`);
  }
  return new Uint8Array(await response.arrayBuffer());
}
