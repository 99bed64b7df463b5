// A classifier and a decoder on the interface that onnxruntime-node, onnxruntime-web and onnxruntime-react-native share.

import { cacheLength, shapeOf, zeros } from "./bundle.js";

// One signature of a bundle. `open`: an async function from the path of a file in the bundle to an `InferenceSession`.
export class OnnxSignature {
  static async open(bundle, name, open, Tensor) {
    const signature = bundle.signature(name);
    return new OnnxSignature(signature, await open(signature.file), Tensor);
  }

  constructor(signature, session, Tensor) {
    Object.assign(this, { signature, session, Tensor });
  }

  // An array as a tensor for an input.
  tensor(name, data, shape) {
    const spec = this.signature.inputs.find((input) => input.name === name);
    return new this.Tensor(spec.dtype, data, shape);
  }

  // Tensors by the names of the manifest.
  async run(inputs) {
    const { names } = this.signature;
    const found = await this.session.run(Object.fromEntries(names.inputs.map(([name, inFile]) => [inFile, inputs[name]])));
    return Object.fromEntries(names.outputs(this.session.outputNames).map(([name, inFile]) => [name, found[inFile]]));
  }
}

// Pairs of a class and its probability for the pixels, from 0 to 255, of one image.
export async function classify(bundle, open, Tensor, pixels) {
  const model = await OnnxSignature.open(bundle, "serve", open, Tensor);
  const [input] = model.signature.inputs;
  const outputs = await model.run({ [input.name]: model.tensor(input.name, pixels, shapeOf(input, { batch: 1 })) });
  return bundle.classes(outputs.probabilities.data);
}

export class OnnxDecoder {
  static async open(bundle, open, Tensor) {
    const step = bundle.files.decode_token ? "decode_token" : "decode";
    const [prefill, decode] = await Promise.all(
      ["prefill", step].map((name) => OnnxSignature.open(bundle, name, open, Tensor)),
    );
    return new OnnxDecoder(bundle, prefill, decode);
  }

  constructor(bundle, prefill, step) {
    Object.assign(this, { bundle, step, reader: prefill });
  }

  // Empties the cache for a prompt and `count` further tokens.
  start(prompt, count) {
    this.length = cacheLength(this.bundle, prompt, count);
    const sizes = { batch: 1, cache_length: this.length };
    this.cache = Object.fromEntries(
      this.step.signature.cache.map((spec) => {
        const shape = shapeOf(spec, sizes);
        return [spec.name, this.step.tensor(spec.name, zeros(spec, shape), shape)];
      }),
    );
    return this;
  }

  prefill(ids) {
    return this.read(this.reader, "lengths", ids, ids.length);
  }

  decode(id, index) {
    return this.read(this.step, "cache_index", [id], index);
  }

  async read(signature, indexName, ids, index) {
    const outputs = await signature.run({
      token_ids: signature.tensor("token_ids", Int32Array.from(ids), [1, ids.length]),
      [indexName]: signature.tensor(indexName, Int32Array.of(index), [1]),
      ...this.cache,
    });
    this.cache = Object.fromEntries(Object.keys(this.cache).map((name) => [name, outputs[name]]));
    return outputs.logits.data;
  }
}
