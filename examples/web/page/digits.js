// The drawing, its classification while drawing, and the attention of the model.

import { openSession, Tensor } from "./sessions.js";
import { placed, rasterize, SIDE } from "./strokes.js";

const PEN = 14;
const STEP = 8;

export class Digits {
  constructor(model) {
    this.model = model;
    this.strokes = [];
    this.stroke = null;  // The current stroke.
    this.pen = { x: 160, y: 160, shown: false };
    this.last = null;  // Pixels, logits and attention of the last answer.
    this.asked = this.running = false;
    this.frame = null;  // The next repainting, of which there is one in a frame of the screen.
    this.problem = null;  // Why the model cannot be loaded.
    this.canvas = document.getElementById("drawing");
    this.overlay = document.getElementById("attention");
    this.answer = document.getElementById("answer");
    this.took = document.getElementById("took");
    this.bars = makeBars();
    this.listen();
  }

  async open(files) {
    this.session = await openSession(files);
    this.ask();
  }

  fail(problem) {
    this.problem = problem;
    this.show();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.stroke = [this.pointOf(event)];
      this.strokes.push(this.stroke);
      this.draw();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.stroke && canvas.hasPointerCapture(event.pointerId)) {
        const passed = event.getCoalescedEvents?.() ?? [];
        this.stroke.push(...(passed.length ? passed : [event]).map((each) => this.pointOf(each)));
        this.draw();
      }
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, () => (this.stroke = null));
    }
    canvas.addEventListener("keydown", (event) => this.pressed(event));
    canvas.addEventListener("blur", () => this.liftPen());
    document.getElementById("clear").addEventListener("click", () => this.clear());
    document.getElementById("overlay").addEventListener("change", () => this.drawAttention());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  pointOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  }

  pressed(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in moves) {
      const [x, y] = moves[event.key];
      const kept = (value) => Math.min(Math.max(value, PEN), this.canvas.width - PEN);
      this.pen = { x: kept(this.pen.x + STEP * x), y: kept(this.pen.y + STEP * y), shown: true };
      this.stroke?.push({ x: this.pen.x, y: this.pen.y });
    } else if (event.key === " ") {
      this.pen.shown = true;
      this.stroke = this.stroke ? null : [{ x: this.pen.x, y: this.pen.y }];
      if (this.stroke) {
        this.strokes.push(this.stroke);
      }
    } else if (event.key === "Escape") {
      this.clear();
    } else {
      return;
    }
    event.preventDefault();
    this.draw();
  }

  liftPen() {
    this.stroke = null;
    this.pen.shown = false;
    this.draw();
  }

  clear() {
    this.strokes = [];
    this.stroke = null;
    this.draw();
  }

  // Strokes arrive more often than frames: they are painted, and classified, once in a frame.
  draw() {
    this.asked = true;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
      this.ask();
    });
  }

  paint() {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.lineWidth = PEN;
    context.lineCap = context.lineJoin = "round";
    context.strokeStyle = getComputedStyle(this.canvas).color;
    for (const [first, ...others] of this.strokes) {
      context.beginPath();
      context.moveTo(first.x, first.y);
      (others.length ? others : [first]).forEach(({ x, y }) => context.lineTo(x, y));
      context.stroke();
    }
    if (this.pen.shown) {
      context.beginPath();
      context.arc(this.pen.x, this.pen.y, PEN / 2 + 3, 0, 2 * Math.PI);
      context.lineWidth = 2;
      context.strokeStyle = this.stroke ? "#d8573c" : "#4a90c4";
      context.stroke();
    }
  }

  // One inference at a time; later strokes are classified by the next one.
  async ask() {
    this.asked = true;
    if (!this.session) {
      this.show();
    }
    if (this.running || !this.session) {
      return;
    }
    this.running = true;
    while (this.asked) {
      this.asked = false;
      await this.compute();
      this.show();
    }
    this.running = false;
  }

  async compute() {
    const place = placed(this.strokes);
    if (place === null) {
      this.last = null;
      return;
    }
    const pixels = rasterize(this.strokes, place);
    const { input, logits, attention, distance } = this.model.names;
    const start = performance.now();
    const found = await this.session.run({ [input]: new Tensor("float32", pixels.slice(), [1, SIDE, SIDE, 1]) });
    const seconds = (performance.now() - start) / 1000;
    const [scores, seen, [apart]] = [logits, attention, distance].map((name) => found[name].data);
    this.last = { place, pixels, seconds, logits: scores, attention: seen, distance: apart };
  }

  show() {
    const probabilities = this.last ? softmax(this.last.logits) : new Array(10).fill(0);
    // digits.py measures how far from its nearest image of the training a digit is at most.
    const isDigit = this.last !== null && this.last.distance <= this.model.largestDistance;
    const likeliest = probabilities.indexOf(Math.max(...probabilities));
    const best = isDigit ? likeliest : -1;
    const percent = (digit) => `${Math.round(100 * probabilities[digit])} %`;
    this.bars.forEach((bar, digit) => {
      bar.style.setProperty("--share", best < 0 ? 0 : probabilities[digit]);
      bar.title = `${digit}: ${percent(digit)}`;
      bar.classList.toggle("best", digit === best);
    });
    this.answer.textContent = best < 0 ? this.reason(likeliest) : `${best}, ${percent(best)} sure`;
    this.took.textContent = this.last ? `${(1000 * this.last.seconds).toFixed(1)} ms` : "";
    this.drawAttention();
  }

  // Why there is no digit.
  reason(likeliest) {
    if (this.problem) {
      return "The model could not be loaded: drawings get no answer.";
    }
    if (!this.strokes.length) {
      return "Nothing drawn yet: draw a digit from 0 to 9.";
    }
    return this.last ? `Not like a digit; the likeliest is ${likeliest}.` : "The model is still loading: the answer comes by itself.";
  }

  // The attention to each pixel, drawn over its area of the drawing.
  drawAttention() {
    const context = this.overlay.getContext("2d");
    context.clearRect(0, 0, this.overlay.width, this.overlay.height);
    if (!this.last || !document.getElementById("overlay").checked) {
      return;
    }
    const { place, attention } = this.last;
    const rows = Math.round(Math.sqrt(attention.length));
    const small = new OffscreenCanvas(rows, rows);
    const image = new ImageData(rows, rows);
    const [low, high] = [Math.min(...attention), Math.max(...attention)];
    attention.forEach((value, index) => {
      const share = (value - low) / Math.max(high - low, 1e-9);
      image.data.set([255, 140, 0, 220 * share], 4 * index);
    });
    small.getContext("2d").putImageData(image, 0, 0);
    const breadth = 32 / place.scale;
    context.imageSmoothingQuality = "high";
    context.drawImage(small, -place.x / place.scale, -place.y / place.scale, breadth, breadth);
  }
}

function makeBars() {
  const list = document.getElementById("bars");
  list.replaceChildren(...Array.from({ length: 10 }, (_, digit) => {
    const bar = document.createElement("li");
    bar.textContent = digit;
    return bar;
  }));
  return Array.from(list.children);
}

function softmax(logits) {
  const most = Math.max(...logits);
  const powers = Array.from(logits, (each) => Math.exp(each - most));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((each) => each / sum);
}
