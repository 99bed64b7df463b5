// Sessions of onnxruntime-web, whose files are next to the page.

import * as ort from "./vendor/ort.wasm.min.mjs";

ort.env.wasm.wasmPaths = new URL("./vendor/", import.meta.url).href;
ort.env.wasm.numThreads = 1;  // More threads require headers that a static server does not send.
ort.env.wasm.proxy = true;  // In a worker, so that the page stays responsive while a model computes.
const binary = bytesOf("vendor/ort-wasm-simd-threaded.wasm");

export const Tensor = ort.Tensor;

// The files of a model: its graph, and its weights by name.
export async function filesOf(model) {
  const [graph, ...weights] = await Promise.all([model.file, ...model.weights].map(bytesOf));
  return { graph, externalData: model.weights.map((path, index) => ({ path: path.split("/").pop(), data: weights[index] })) };
}

export async function openSession({ graph, externalData }) {
  ort.env.wasm.wasmBinary ??= await binary;
  return ort.InferenceSession.create(graph, { executionProviders: ["wasm"], externalData, logSeverityLevel: 3 });
}

async function bytesOf(path) {
  const response = await fetch(`${path}.packed`);
  if (!response.ok) {
    throw new Error(`${path}: ${response.status}`);
  }
  const unpacked = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}
