// A classifier and a decoder on LiteRT.js, whose tensors are deleted by hand. `api`: the module @litertjs/core, loaded.

import { shapeOf, zeros } from "./bundle.js";

// Runs a signature for one row. `inputs`: arrays, and tensors of the cache, by the names of the manifest. All given tensors are
// deleted; returns tensors by name.
async function run(api, model, signature, inputs) {
  const { names } = signature;
  const tensors = Object.fromEntries(
    signature.inputs.map((spec, index) => {
      const value = inputs[spec.name];
      const tensor = ArrayBuffer.isView(value) ? new api.Tensor(value, shapeOf(spec, { batch: 1 })) : value;
      return [names.inputs[index][1], tensor];
    }),
  );
  const found = await model.signatures[signature.name].run(tensors);
  Object.values(tensors).forEach((tensor) => tensor.delete());
  return Object.fromEntries(names.outputs().map(([name, inFile]) => [name, found[inFile]]));
}

// The values of one output; deletes the tensors, except the named ones.
async function valuesOf(outputs, name, kept = []) {
  const values = Array.from(await outputs[name].data());
  for (const [other, tensor] of Object.entries(outputs)) {
    if (!kept.includes(other)) {
      tensor.delete();
    }
  }
  return values;
}

// Pairs of a class and its probability for the pixels, from 0 to 255, of one image. `open`: an async function from the path
// of a file in the bundle to a `CompiledModel`.
export async function classify(bundle, open, api, pixels) {
  // A signature of fixed shapes where the bundle has one, from `export(..., options=ExportOptions(static={"batch": 1}))`.
  const signature = bundle.signature(bundle.files.serve_1 ? "serve_1" : "serve");
  const model = await open(signature.file);
  const outputs = await run(api, model, signature, { [signature.inputs[0].name]: pixels });
  return bundle.classes(await valuesOf(outputs, "probabilities"));
}

// The slots of the cache in the signatures of fixed shapes, where a bundle has others too.
function slots(bundle, step) {
  const { cache } = bundle.signature("prefill");
  const [length] = cache.flatMap(({ axes }, index) => {
    const axis = axes.indexOf("cache_length");
    return axis < 0 ? [] : [step.cache[index].shape[axis]];
  });
  return length;
}

// The signatures of fixed shapes: `prefill_32`, `prefill_128`, ... read prompts, and `decode_1` one token.
export class LiteRtDecoder {
  static async open(bundle, open, api) {
    const step = bundle.signature("decode_1");
    return new LiteRtDecoder(bundle, step, await open(step.file), api);
  }

  constructor(bundle, step, model, api) {
    Object.assign(this, { bundle, step, model, api, cache: {} });
    this.length = bundle.manifest.generation.static_length ?? slots(bundle, step);
    const prompts = Object.keys(bundle.files).filter((name) => /^prefill_\d+$/.test(name));
    this.sizes = prompts.map((name) => Number(name.split("_")[1])).sort((a, b) => a - b);
  }

  // Empties the cache.
  start() {
    Object.values(this.cache).forEach((tensor) => tensor.delete());
    this.cache = Object.fromEntries(
      this.step.cache.map((spec) => [spec.name, new this.api.Tensor(zeros(spec, spec.shape), spec.shape)]),
    );
    return this;
  }

  // Reads as much as the smallest signature that holds the prompt, or the largest, takes; further tokens one by one.
  async prefill(ids) {
    const size = this.sizes.find((each) => each >= ids.length) ?? this.sizes.at(-1) ?? 0;
    const first = Math.min(size, ids.length);
    let logits;
    if (size > 0) {
      const padded = new Int32Array(size);
      padded.set(ids.slice(0, first));
      const signature = this.bundle.signature(`prefill_${size}`);
      logits = await this.read(signature, { token_ids: padded, lengths: Int32Array.of(first) });
    }
    for (let index = first; index < ids.length; index++) {
      logits = await this.decode(ids[index], index);
    }
    return logits;
  }

  decode(id, index) {
    return this.read(this.step, { token_ids: Int32Array.of(id), cache_index: Int32Array.of(index) });
  }

  async read(signature, inputs) {
    const names = this.step.cache.map(({ name }) => name);
    const outputs = await run(this.api, this.model, signature, { ...inputs, ...this.cache });
    this.cache = Object.fromEntries(names.map((name) => [name, outputs[name]]));
    return valuesOf(outputs, "logits", names);
  }
}
