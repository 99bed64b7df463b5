// Draws the attention of one query: choose a layer and a head, and click a token or a patch.

const record = JSON.parse(document.getElementById("attention").textContent);
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const maps = record.maps.map((each) => ({ ...each, scores: bytes(each.scores) }));
const [layers, heads, tokens, picture, explained] = ["layer", "head", "tokens", "picture", "explained"].map((id) =>
  document.getElementById(id),
);
const color = getComputedStyle(document.documentElement).getPropertyValue("--high");
// The class token of an image, or the last token of a text, which attends to all before it.
let query = record.grid ? 0 : Infinity;

layers.append(...maps.map((each, index) => new Option(each.layer, index)));
layers.selectedIndex = maps.length - 1;

function fillHeads() {
  const [count] = maps[layers.value].shape;
  heads.replaceChildren(new Option("mean of all", -1), ...Array.from({ length: count }, (_, head) => new Option(head, head)));
}

// Scores of the query to every key, 0 to 255.
function row() {
  const { shape, scores } = maps[layers.value];
  const [count, queries, keys] = shape;
  query = Math.min(query, queries - 1);
  const chosen = Number(heads.value) < 0 ? Array.from({ length: count }, (_, head) => head) : [Number(heads.value)];
  const sum = new Float32Array(keys);
  for (const head of chosen) {
    for (let key = 0; key < keys; key++) {
      sum[key] += scores[(head * queries + query) * keys + key] / chosen.length;
    }
  }
  return sum;
}

function label(index) {
  if (record.grid) {
    const [, columns, before] = record.grid;
    const patch = index - before;
    return patch < 0 ? "class token" : `patch ${Math.floor(patch / columns)}, ${patch % columns}`;
  }
  return record.tokens?.[index] ?? String(index);
}

function drawTokens(scores, most) {
  const [, queries, keys] = maps[layers.value].shape;
  tokens.replaceChildren(...Array.from({ length: Math.max(queries, keys) }, (_, index) => {
    const token = document.createElement("button");
    token.className = index === query ? "token chosen" : "token";
    token.textContent = label(index);
    token.disabled = index >= queries;
    token.style.background = index < keys ? `rgba(${color}, ${scores[index] / most})` : "none";
    token.title = index < keys ? `${((100 * scores[index] * maps[layers.value].largest) / 255).toFixed(1)} %` : "";
    token.addEventListener("click", () => choose(index));
    return token;
  }));
}

function drawImage(scores, most) {
  const [rows, columns, before] = record.grid;
  const [height, width, channels] = record.image.shape;
  const pixels = bytes(record.image.pixels);
  const small = new OffscreenCanvas(width, height);
  const image = new ImageData(width, height);
  for (let index = 0; index < width * height; index++) {
    const [red, green, blue] = [0, 1, 2].map((channel) => pixels[index * channels + (channels < 3 ? 0 : channel)]);
    image.data.set([red, green, blue, 255], 4 * index);
  }
  small.getContext("2d").putImageData(image, 0, 0);
  picture.hidden = false;
  [picture.width, picture.height] = [480, Math.round((480 * height) / width)];
  const context = picture.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.filter = "grayscale(1) brightness(0.8)";  // All color is attention.
  context.drawImage(small, 0, 0, picture.width, picture.height);
  context.filter = "none";
  const [across, down] = [picture.width / columns, picture.height / rows];
  for (let patch = 0; patch < rows * columns; patch++) {
    const place = [(patch % columns) * across, Math.floor(patch / columns) * down, across, down];
    context.fillStyle = `rgba(255, 150, 20, ${(0.85 * scores[patch + before]) / most})`;
    context.fillRect(...place);
    if (patch + before === query) {
      context.strokeStyle = "#fff";
      context.lineWidth = 3;
      context.strokeRect(...place);
    }
  }
}

function draw() {
  const scores = row();
  const most = Math.max(...scores, 1e-9);
  const [, queries, keys] = maps[layers.value].shape;
  const fits = record.grid && keys === record.grid[0] * record.grid[1] + record.grid[2] && queries === keys;
  picture.hidden = !fits;
  tokens.hidden = Boolean(fits);
  fits ? drawImage(scores, most) : drawTokens(scores, most);
  const share = ((100 * most * maps[layers.value].largest) / 255).toFixed(1);
  explained.textContent =
    `What “${label(query)}” attends to: the strongest color is ${share} % of its attention. Click another one to see its.`;
}

function choose(index) {
  query = index;
  draw();
}

picture.addEventListener("click", (event) => {
  const [rows, columns, before] = record.grid;
  const box = picture.getBoundingClientRect();
  const [column, line] = [
    Math.floor(((event.clientX - box.left) / box.width) * columns),
    Math.floor(((event.clientY - box.top) / box.height) * rows),
  ];
  choose(line * columns + column + before);
});
layers.addEventListener("change", () => {
  fillHeads();
  draw();
});
heads.addEventListener("change", draw);
fillHeads();
draw();
