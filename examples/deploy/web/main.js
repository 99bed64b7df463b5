// The page: a classifier and a language model of keras_transformer, in ONNX Runtime Web or in LiteRT.js.

import { Bundle, generate } from "./js_common/bundle.js";
import { readImage } from "./js_common/image.js";
import * as litert from "./js_common/litert.js";
import * as onnx from "./js_common/onnx.js";

const element = (id) => document.getElementById(id);
const pathTo = (path) => new URL(path, import.meta.url).href;

async function fetched(path) {
  const response = await fetch(pathTo(path));
  if (!response.ok) {
    throw new Error(`${path}: ${response.status}`);
  }
  return response;
}

const readText = async (path) => (await fetched(path)).text();
const readBytes = async (path) => new Uint8Array(await (await fetched(path)).arrayBuffer());

// Each runtime is loaded when it is chosen for the first time.
const RUNTIMES = {
  async onnx() {
    const ort = await import("./vendor/onnxruntime/ort.wasm.min.mjs");
    ort.env.wasm.wasmPaths = pathTo("vendor/onnxruntime/");
    ort.env.wasm.numThreads = 1; // More threads need headers that a static server does not send.
    const opener = (folder, manifest) => {
      // The ONNX files of a bundle share one file of weights.
      const names = Object.keys(manifest.files).filter((name) => name.endsWith(".weights"));
      const weights = Promise.all(names.map(async (path) => ({ path, data: await readBytes(`${folder}/${path}`) })));
      return async (file) => {
        const [graph, externalData] = await Promise.all([readBytes(`${folder}/${file}`), weights]);
        return ort.InferenceSession.create(graph, { executionProviders: ["wasm"], externalData });
      };
    };
    return {
      format: "onnx",
      language: "decoder",
      opener,
      classify: (bundle, open, pixels) => onnx.classify(bundle, open, ort.Tensor, pixels),
      decoder: (bundle, open) => onnx.OnnxDecoder.open(bundle, open, ort.Tensor),
    };
  },
  litert: () => liteRt({}),
  // A GPU takes files of fixed shapes only: `export(..., options=ExportOptions(target="litert-gpu"))`.
  webgpu: () => liteRt({ classifier: "webgpu", decoder_gpu: "webgpu" }, "decoder_gpu"),
};

let loading;

// LiteRT.js, with the accelerators of bundles by name, "wasm" where none is given, and the bundle of the language model.
async function liteRt(accelerators, language = "decoder") {
  const api = await import("./vendor/litert/index.js");
  // With promises in WebAssembly, the CPU computes what the GPU does not take.
  loading ??= api.loadLiteRt(pathTo("vendor/litert/wasm/"), { jspi: "Suspending" in WebAssembly });
  await loading;
  const opener = (folder) => (file) => {
    const accelerator = accelerators[folder.split("/").pop()] ?? "wasm";
    return api.loadAndCompile(pathTo(`${folder}/${file}`), { accelerator, gpuOptions: { precision: "fp32" } });
  };
  return {
    format: "tflite",
    language,
    opener,
    classify: (bundle, open, pixels) => litert.classify(bundle, open, api, pixels),
    decoder: (bundle, open) => litert.LiteRtDecoder.open(bundle, open, api),
  };
}

// A bundle of `bundles/` in one runtime.
async function openBundle(runtime, name) {
  const folder = `bundles/${name}`;
  const manifest = JSON.parse(await readText(`${folder}/manifest.json`));
  const bundle = new Bundle(manifest, runtime.format, (path) => readText(`${folder}/${path}`));
  return { bundle, open: runtime.opener(folder, manifest) };
}

const opened = {};

// The models in the chosen runtime.
function models() {
  const name = document.querySelector("[name=runtime]:checked").value;
  opened[name] ??= (async () => {
    const runtime = await RUNTIMES[name]();
    const [classifier, language] = await Promise.all(["classifier", runtime.language].map((each) => openBundle(runtime, each)));
    const [tokenizer, decoder] = await Promise.all([
      language.bundle.tokenizer(),
      runtime.decoder(language.bundle, language.open),
    ]);
    const classify = (pixels) => runtime.classify(classifier.bundle, classifier.open, pixels);
    return { shape: classifier.bundle.signature("serve").inputs[0].shape, classify, language, tokenizer, decoder };
  })();
  return opened[name];
}

let pixels;

async function showImage(bytes, isPortable) {
  const { shape } = await models();
  const [, height, width, channels] = shape;
  const canvas = Object.assign(element("image"), { height, width });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (isPortable) {
    pixels = readImage(bytes, shape);
    const image = new ImageData(width, height);
    for (let place = 0; place < height * width; place++) {
      const colors = pixels.subarray(place * channels, (place + 1) * channels);
      image.data.set([...(channels === 3 ? colors : [colors[0], colors[0], colors[0]]), 255], 4 * place);
    }
    context.putImageData(image, 0, 0);
  } else {
    context.drawImage(await createImageBitmap(new Blob([bytes])), 0, 0, width, height);
    const { data } = context.getImageData(0, 0, width, height);
    pixels = new Float32Array(height * width * channels);
    for (let place = 0; place < height * width; place++) {
      const [red, green, blue] = data.subarray(4 * place);
      pixels.set(channels === 3 ? [red, green, blue] : [0.299 * red + 0.587 * green + 0.114 * blue], place * channels);
    }
  }
  await classify();
}

async function classify() {
  const classes = await (await models()).classify(pixels);
  element("classes").replaceChildren(
    ...classes.slice(0, 5).map(([name, probability]) => {
      const [row, share] = ["li", "span"].map((tag) => document.createElement(tag));
      share.textContent = `${(100 * probability).toFixed(1)} %`;
      row.append(name, share);
      return row;
    }),
  );
  window.page.classes = classes;
}

async function continueText() {
  const { language, tokenizer, decoder } = await models();
  const text = element("text").value;
  const count = element("count").valueAsNumber || 1;
  const prompt = tokenizer.encode(text);
  const ids = [];
  const start = performance.now();
  for await (const id of generate(language.bundle, decoder.start(prompt, count), prompt, count)) {
    ids.push(id);
    element("text").value = text + tokenizer.decode(ids);
    const rate = (1000 * ids.length) / (performance.now() - start);
    element("pace").textContent = `${ids.length} tokens, ${rate.toFixed(0)} a second`;
    await new Promise((resume) => setTimeout(resume)); // The page is drawn.
  }
  window.page.tokens = ids;
}

// Shows what an action does, and its error.
async function act(action) {
  element("state").textContent = "Working …";
  element("continue").disabled = true;
  try {
    await action();
    element("state").textContent = "Ready.";
  } catch (error) {
    element("state").textContent = `Error: ${error.message}`;
  }
  element("continue").disabled = false;
}

window.page = {};
element("continue").addEventListener("click", () => act(continueText));
element("file").addEventListener("change", async ({ target }) => {
  const [file] = target.files;
  const bytes = new Uint8Array(await file.arrayBuffer());
  act(() => showImage(bytes, /\.p[gp]m$/.test(file.name)));
});
document.querySelectorAll("[name=runtime]").forEach((input) => input.addEventListener("change", () => act(classify)));
act(async () => showImage(await readBytes("bundles/digit.pgm"), true));
