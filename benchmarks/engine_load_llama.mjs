// llama.cpp under a load of requests, by node-llama-cpp, whose context computes the texts of all sequences in one batch.
// Called by engine_load_peers.py: node engine_load_llama.mjs TASK.json. The answer is another file of JSON.

import {readFileSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const task = JSON.parse(readFileSync(process.argv[2], "utf8"));
const require = createRequire(`${task.modules}/node-llama-cpp/package.json`);
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const version = JSON.parse(readFileSync(`${task.modules}/node-llama-cpp/package.json`, "utf8")).version;

const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: task.threads});
const model = await llama.loadModel({modelPath: task.model});
const context = await model.createContext({
    sequences: task.rows, contextSize: task.length, threads: task.threads, batchSize: 512,
    experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
});
const free = Array.from({length: task.rows}, () => context.getSequence());
const waiting = [];

// A row of the context as soon as there is one, in the order of the calls.
function row() {
    return free.length ? Promise.resolve(free.pop()) : new Promise((resolve) => waiting.push(resolve));
}

function giveBack(sequence) {
    if (waiting.length) waiting.shift()(sequence);
    else free.push(sequence);
}

// One request from its arrival on: the seconds until each of its tokens, and the tokens.
async function follow({prompt, count}) {
    const start = performance.now();
    const sequence = await row();
    const seconds = [], tokens = [];
    try {
        await sequence.clearHistory();
        for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
            seconds.push((performance.now() - start) / 1000);
            tokens.push(token);
            if (tokens.length === count) break;
        }
    } finally {
        giveBack(sequence);
    }
    return {seconds, tokens};
}

async function course(arrivals) {
    const start = performance.now();
    const running = [];
    for (const [number, request] of task.requests.entries()) {
        const wait = arrivals[number] * 1000 - (performance.now() - start);
        if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
        running.push(follow(request));
    }
    const answers = await Promise.all(running);
    return {took: (performance.now() - start) / 1000, answers};
}

await follow(task.requests[0]);
const courses = [];
for (const arrivals of task.arrivals) courses.push(await course(arrivals));
writeFileSync(task.answer, JSON.stringify({name: `llama.cpp (node-llama-cpp ${version})`, courses}));
process.exit(0);
