// A classifier and a language model in a React Native app, on onnxruntime-react-native.
//
// The bundles are files of the app: on Android in `android/app/src/main/assets/bundles`, on iOS a folder reference `bundles` in
// the Xcode project. ONNX Runtime opens files by their path, and assets of Android have none: they are copied once.

import * as fs from "@dr.pogodin/react-native-fs";
import { InferenceSession, Tensor } from "onnxruntime-react-native";
import { Platform } from "react-native";

import { Bundle, generate } from "../js_common/bundle.js";
import { classify, OnnxDecoder } from "../js_common/onnx.js";

// The folder of a bundle.
async function unpacked(name) {
  if (Platform.OS !== "android") {
    return `${fs.MainBundlePath}/bundles/${name}`;
  }
  const [assets, folder] = [`bundles/${name}`, `${fs.DocumentDirectoryPath}/bundles/${name}`];
  const manifest = JSON.parse(await fs.readFileAssets(`${assets}/manifest.json`, "utf8"));
  const tokenizer = manifest.tokenizer?.path;
  const isUsed = (file) => /\.(onnx|weights)$/.test(file) || (tokenizer && file.startsWith(`${tokenizer}/`));
  for (const file of ["manifest.json", ...Object.keys(manifest.files).filter(isUsed)]) {
    const target = `${folder}/${file}`;
    await fs.mkdir(target.slice(0, target.lastIndexOf("/")));
    await fs.copyFileAssets(`${assets}/${file}`, target);
  }
  return folder;
}

async function openBundle(name) {
  const folder = await unpacked(name);
  const readText = (file) => fs.readFile(`${folder}/${file}`, "utf8");
  const bundle = new Bundle(JSON.parse(await readText("manifest.json")), "onnx", readText);
  return { bundle, open: (file) => InferenceSession.create(`${folder}/${file}`) };
}

export class Models {
  static async open() {
    const [classifier, language] = await Promise.all(["classifier", "decoder"].map(openBundle));
    const [tokenizer, decoder] = await Promise.all([
      language.bundle.tokenizer(),
      OnnxDecoder.open(language.bundle, language.open, Tensor),
    ]);
    return new Models(classifier, language.bundle, tokenizer, decoder);
  }

  constructor(classifier, language, tokenizer, decoder) {
    Object.assign(this, { classifier, language, tokenizer, decoder });
    // (batch, height, width, channels) of an image.
    this.shape = classifier.bundle.signature("serve").inputs[0].shape;
  }

  // Pairs of a class and its probability. `pixels`: a Float32Array from 0 to 255 in the size that the model takes.
  classify(pixels) {
    return classify(this.classifier.bundle, this.classifier.open, Tensor, pixels);
  }

  // Yields the text after each token, and returns the tokens.
  async *continueText(text, count) {
    const prompt = this.tokenizer.encode(text);
    const ids = [];
    for await (const id of generate(this.language, this.decoder.start(prompt, count), prompt, count)) {
      ids.push(id);
      yield text + this.tokenizer.decode(ids);
    }
    return ids;
  }
}
