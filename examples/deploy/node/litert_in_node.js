// LiteRT.js is made for web pages, where it loads its WebAssembly by a script. Node runs it once it finds what a web worker
// has: `self`, `navigator` and `importScripts`.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

// Returns the loaded module @litertjs/core. `require` finds the package.
export async function loadInNode(require) {
  const packageFolder = path.dirname(require.resolve("@litertjs/core/package.json"));
  const wasm = path.join(packageFolder, "wasm");
  globalThis.self = globalThis;
  globalThis.navigator ??= {};
  globalThis.importScripts = (file) => runInThisContext(readFileSync(file, "utf8"), { filename: file });
  Object.assign(globalThis, { require: createRequire(`${wasm}/`), __dirname: wasm, __filename: `${wasm}/index.js` });
  const api = await import(pathToFileURL(path.join(packageFolder, "dist", "index.js")));
  await api.loadLiteRt(`${wasm}/`);
  return api;
}
