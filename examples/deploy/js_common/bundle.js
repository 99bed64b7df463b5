// What a bundle's manifest says of its files, and the loop that continues a text: for Node, web pages and React Native.

import { BytePair } from "./byte_pair.js";

export class Bundle {
  // `manifest`: the parsed manifest.json. `format`: "onnx" or "tflite". `readText`: an async function from the path of a file
  // in the bundle to its text.
  constructor(manifest, format, readText) {
    Object.assign(this, { manifest, format, readText });
    this.files = manifest.artifacts[format]?.signatures;
    if (!this.files) {
      throw new Error(`the bundle has no ${format} file`);
    }
  }

  // File, inputs and outputs of a signature.
  signature(name) {
    if (!this.files[name]) {
      throw new Error(`the bundle has no signature ${name}`);
    }
    const { inputs, outputs } = this.manifest.signatures[name];
    // The tensors of the cache: what a step takes and gives back under one name.
    const cache = inputs.filter((input) => outputs.some((output) => output.name === input.name));
    return { name, file: this.files[name], inputs, outputs, cache, names: this.namesInFile(name, inputs, outputs) };
  }

  // Pairs of a name and the name in the file: those of inputs, and a function that returns those of outputs. It takes the
  // names of the file in order, for manifests of earlier versions: the outputs of a file have the order of the manifest.
  namesInFile(signature, inputs, outputs) {
    const names = this.manifest.artifacts[this.format].names?.[signature];
    return {
      inputs: inputs.map(({ name }) => [name, names?.inputs[name] ?? name]),
      outputs: (order) => outputs.map(({ name }, index) => [name, names?.outputs[name] ?? order?.[index] ?? name]),
    };
  }

  async tokenizer() {
    const folder = this.manifest.tokenizer.path;
    const [config, file] = await Promise.all(
      ["tokenizer_config.json", "tokenizer.json"].map(async (name) => JSON.parse(await this.readText(`${folder}/${name}`))),
    );
    return new BytePair(config, file);
  }

  // Pairs of a class and its probability, the most likely first. Classes are numbers where the bundle was exported without
  // `metadata={"class_names": [...]}`.
  classes(probabilities) {
    const names = this.manifest.metadata.class_names ?? [];
    const pairs = Array.from(probabilities, (probability, index) => [names[index] ?? String(index), probability]);
    return pairs.sort((a, b) => b[1] - a[1]);
  }
}

// The shape of a tensor with the sizes of its dynamic axes.
export function shapeOf(spec, sizes) {
  return spec.shape.map((size, axis) => size ?? sizes[spec.axes[axis]]);
}

const ARRAYS = { float32: Float32Array, int32: Int32Array, int8: Int8Array, float16: Uint16Array };

// Zeros in the type of a tensor.
export function zeros(spec, shape) {
  return new ARRAYS[spec.dtype](shape.reduce((a, b) => a * b, 1));
}

// Yields the most likely tokens after a prompt, at most `count`. `decoder` has `prefill(ids)` and `decode(id, index)`, which
// return the logits after the last token that they read, and `length`, the slots of its cache.
export async function* generate(bundle, decoder, prompt, count) {
  const { max_length: most, end_id: end } = bundle.manifest.generation;
  const length = Math.min(prompt.length + count, most ?? Infinity, decoder.length ?? Infinity);
  if (prompt.length === 0 || prompt.length >= length) {
    throw new Error("the prompt is empty or too long");
  }
  let logits = await decoder.prefill(prompt);
  for (let index = prompt.length; ; index++) {
    const id = logits.reduce((best, value, place) => (value > logits[best] ? place : best), 0);
    if ([end].flat().includes(id)) {
      return;
    }
    yield id;
    if (index + 1 >= length) {
      return;
    }
    logits = await decoder.decode(id, index);
  }
}

// The slots that the cache of a prompt and its continuation needs.
export function cacheLength(bundle, prompt, count) {
  return Math.min(prompt.length + count, bundle.manifest.generation.max_length ?? Infinity);
}
