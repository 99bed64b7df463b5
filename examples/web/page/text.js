// Generates text token by token. The cache is kept between tokens and, for the unchanged prefix of the text, between two
// presses of the button.

import { openSession, Tensor } from "./sessions.js";
import { tokenizerOf } from "./tokenizers.js";

const TOP_K = 20;
const FRAME = 12;  // Milliseconds of generation between two updates of the text.

export class Text {
  constructor(model) {
    this.model = model;
    Object.assign(this, tokenizerOf(model.tokenizer));
    this.read = [];  // The tokens in the cache,
    this.begin = 0;  // and the index of the first one in the text.
    this.tokensRead = 0;
    this.going = false;
    this.area = document.getElementById("text");
    this.pace = document.getElementById("pace");
    document.getElementById("unit").textContent = this.unit;
    this.listen();
  }

  async open(files) {
    this.session = await openSession(files);
    this.cache = this.empty();
    this.pace.textContent = "";
    document.getElementById("continue").disabled = false;
  }

  fail() {
    this.pace.textContent = "The model could not be loaded: texts are not continued.";
  }

  listen() {
    document.getElementById("continue").addEventListener("click", () => this.fromForm());
    document.getElementById("stop").addEventListener("click", () => (this.going = false));
    this.area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.fromForm();
      } else if (event.key === "Escape") {
        this.going = false;
      }
    });
  }

  fromForm() {
    const [count, temperature] = ["count", "temperature"].map((id) => document.getElementById(id).valueAsNumber);
    return this.continue(Math.min(count || 1, 2000), temperature || 0);
  }

  // Appends `count` tokens to the text unless it is stopped, or the model ends it.
  async continue(count, temperature) {
    if (this.going || !this.session) {
      return;
    }
    const before = this.area.value;
    const ids = this.tokenizer.encode(before);
    if (!ids.length) {
      this.pace.textContent = "Write a few words first: the model continues them.";
      return;
    }
    this.setGoing(true);
    const start = performance.now();
    let drawn = start;
    const written = [];
    while (this.going && written.length < count) {
      const id = choose(await this.next(ids), temperature);
      if (this.model.ends.includes(id)) {
        break;
      }
      ids.push(id);
      written.push(id);
      this.area.value = before + this.tokenizer.decode(written);
      this.area.scrollTop = this.area.scrollHeight;
      const seconds = (performance.now() - start) / 1000;
      this.pace.textContent = `${written.length} ${this.unit}, ${(written.length / seconds).toFixed(0)} a second`;
      if (performance.now() - drawn > FRAME) {
        await new Promise(requestAnimationFrame);
        drawn = performance.now();
      }
    }
    if (!written.length) {
      this.pace.textContent = "The model ends the text here.";
    }
    this.setGoing(false);
  }

  setGoing(going) {
    this.going = going;
    this.area.readOnly = going;
    document.getElementById("continue").disabled = going;
    document.getElementById("stop").disabled = !going;
  }

  // Returns the logits after the tokens of a text; only those that are not in the cache are processed.
  async next(ids) {
    let window = ids.slice(this.begin);
    let kept = 0;
    while (kept < Math.min(this.read.length, window.length - 1) && this.read[kept] === window[kept]) {
      kept += 1;
    }
    if (kept === 0 || window.length > this.model.maxLength) {
      // Half of the cache is for new tokens.
      this.begin = ids.length > this.model.maxLength ? ids.length - Math.floor(this.model.maxLength / 2) : 0;
      [window, kept, this.cache] = [ids.slice(this.begin), 0, this.empty()];
    }
    const logits = await this.step(window.slice(kept), kept);
    this.read = window;
    return logits;
  }

  async step(tokens, index) {
    const found = await this.session.run({
      token_ids: new Tensor("int32", Int32Array.from(tokens), [1, tokens.length]),
      cache_index: new Tensor("int32", Int32Array.of(index), [1]),
      ...this.cache,
    });
    this.cache = Object.fromEntries(this.model.cache.map(({ input, output }) => [input, found[output]]));
    this.tokensRead += tokens.length;
    const { data, dims } = found[this.model.logits];
    return data.slice(data.length - dims[2]);
  }

  empty() {
    return Object.fromEntries(
      this.model.cache.map(({ input, shape }) => {
        const size = shape.reduce((a, b) => a * b);
        return [input, new Tensor("float32", new Float32Array(size), shape)];
      }),
    );
  }
}

// The most likely token at temperature 0, else a sample from the most likely ones.
export function choose(logits, temperature) {
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  if (!(temperature > 0)) {
    return order[0];
  }
  const likeliest = order.slice(0, TOP_K);
  const weights = likeliest.map((id) => Math.exp((logits[id] - logits[order[0]]) / temperature));
  let left = Math.random() * weights.reduce((a, b) => a + b);
  return likeliest.find((_, place) => (left -= weights[place]) < 0) ?? order[0];
}
