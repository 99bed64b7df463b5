// A classifier and a language model of keras_transformer in Node.
//
//     npm install
//     node main.js classify BUNDLE IMAGE.pgm           prints the classes, the most likely first
//     node main.js generate BUNDLE "The prompt" 40     continues a text by 40 tokens
//
// `--runtime litert` runs the TFLite file with LiteRT.js instead of the ONNX files with onnxruntime-node.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { parseArgs } from "node:util";

import { Bundle, generate } from "../js_common/bundle.js";
import * as litert from "../js_common/litert.js";
import { readImage } from "../js_common/image.js";
import * as onnx from "../js_common/onnx.js";

// By default the packages are those in `node_modules`; KERAS_TRANSFORMER_NODE_MODULES names another folder of that kind.
const modules = process.env.KERAS_TRANSFORMER_NODE_MODULES;
const require = createRequire(modules ? path.join(modules, "index.js") : import.meta.url);

async function onnxRuntime(folder) {
  const { InferenceSession, Tensor } = require("onnxruntime-node");
  const open = (file) => InferenceSession.create(path.join(folder, file), { intraOpNumThreads: 2 });
  return {
    format: "onnx",
    classify: (bundle, pixels) => onnx.classify(bundle, open, Tensor, pixels),
    decoder: (bundle) => onnx.OnnxDecoder.open(bundle, open, Tensor),
  };
}

async function liteRt(folder) {
  const { loadInNode } = await import("./litert_in_node.js");
  const api = await loadInNode(require);
  const open = async (file) => {
    const content = new Uint8Array(await readFile(path.join(folder, file)));
    return api.loadAndCompile(content, { accelerator: "wasm" });
  };
  return {
    format: "tflite",
    classify: (bundle, pixels) => litert.classify(bundle, open, api, pixels),
    decoder: (bundle) => litert.LiteRtDecoder.open(bundle, open, api),
  };
}

async function main() {
  const options = { runtime: { type: "string", default: "onnx" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [command, folder, given, count] = positionals;
  if (!(command === "classify" && given) && !(command === "generate" && Number(count) > 0)) {
    throw new Error("expected: classify BUNDLE IMAGE.pgm, or generate BUNDLE TEXT COUNT");
  }
  const readText = (file) => readFile(path.join(folder, file), "utf8");
  const runtime = await (values.runtime === "litert" ? liteRt : onnxRuntime)(folder);
  const bundle = new Bundle(JSON.parse(await readText("manifest.json")), runtime.format, readText);
  if (command === "classify") {
    const { shape } = bundle.signature("serve").inputs[0];
    const classes = await runtime.classify(bundle, readImage(await readFile(given), shape));
    console.log(classes.map(([name, probability]) => `${name} ${probability.toFixed(6)}`).join("\n"));
    return;
  }
  const tokenizer = await bundle.tokenizer();
  const prompt = tokenizer.encode(given);
  const decoder = (await runtime.decoder(bundle)).start(prompt, Number(count));
  const ids = [];
  for await (const id of generate(bundle, decoder, prompt, Number(count))) {
    ids.push(id);
  }
  console.log(tokenizer.decode(ids));
  console.error(`tokens ${ids.join(" ")}`);
}

main().catch((error) => {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
});
