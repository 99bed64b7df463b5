// Lets Node import examples/deploy/react_native/models.js: onnxruntime-node for onnxruntime-react-native, whose interface it
// has, and files of this computer for those of an app. KERAS_TRANSFORMER_APP names the folder of the app's assets.

import { createRequire, register } from "node:module";
import path from "node:path";

const modules = process.env.KERAS_TRANSFORMER_NODE_MODULES;
globalThis.requireForTests = createRequire(path.join(modules, "index.js"));

const FILES = `
import { copyFile, mkdir as make, readFile as read } from "node:fs/promises";
const assets = process.env.KERAS_TRANSFORMER_APP;
export const DocumentDirectoryPath = assets + "/documents";
export const MainBundlePath = assets;
export const readFile = (path, encoding) => read(path, encoding);
export const readFileAssets = (path, encoding) => read(assets + "/" + path, encoding);
export const mkdir = (path) => make(path, { recursive: true });
export const copyFileAssets = (path, target) => copyFile(assets + "/" + path, target);
`;
const STUBS = {
  "@dr.pogodin/react-native-fs": FILES,
  "react-native": `export const Platform = { OS: process.env.KERAS_TRANSFORMER_PLATFORM };`,
  "onnxruntime-react-native": `
    export const { InferenceSession, Tensor } = globalThis.requireForTests("onnxruntime-node");
  `,
};
const HOOKS = `
const STUBS = ${JSON.stringify(STUBS)};
export const resolve = (name, context, next) => name in STUBS
  ? { url: "data:text/javascript," + encodeURIComponent(STUBS[name]), shortCircuit: true } : next(name, context);
`;
register("data:text/javascript," + encodeURIComponent(HOOKS));
