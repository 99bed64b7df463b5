// Converts strokes to the pixels of the training data: 8 x 8 counts, 0 to 16, of the dots of a 32 x 32 bitmap.
// A drawing is scaled to the height or width of the bitmap, with a constant pen width.

export const SIDE = 8;
const FINE = 32;
const BLOCK = FINE / SIDE;
const HEIGHT = 32;
const WIDTH = 26;
const RADIUS = 2.2;
const SMALLEST = 20;  // Drawings smaller than this, in units of the drawing, are dots and are not scaled up.

// The map of a drawing to the bitmap: bitmap = place.scale * drawing + (place.x, place.y); null without a drawing.
export function placed(strokes) {
  const points = strokes.flat();
  if (!points.length) {
    return null;
  }
  const [xs, ys] = [points.map((point) => point.x), points.map((point) => point.y)];
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const across = (WIDTH - 2 * RADIUS) / Math.max(right - left, SMALLEST);
  const down = (HEIGHT - 2 * RADIUS) / Math.max(bottom - top, SMALLEST);
  const scale = Math.min(across, down);
  return { scale, x: FINE / 2 - (scale * (left + right)) / 2, y: FINE / 2 - (scale * (top + bottom)) / 2 };
}

export function rasterize(strokes, place = placed(strokes)) {
  const pixels = new Float32Array(SIDE * SIDE);
  if (place === null) {
    return pixels;
  }
  const dots = new Uint8Array(FINE * FINE);
  for (const stroke of strokes) {
    const points = stroke.map(({ x, y }) => [place.scale * x + place.x, place.scale * y + place.y]);
    points.forEach((point, index) => mark(dots, point, points[Math.min(index + 1, points.length - 1)]));
  }
  dots.forEach((dot, index) => {
    const [row, column] = [Math.floor(index / FINE), index % FINE];
    pixels[Math.floor(row / BLOCK) * SIDE + Math.floor(column / BLOCK)] += dot;
  });
  return pixels;
}

// Marks the dots whose centers are near a segment; others than those around it are not looked at.
function mark(dots, [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const first = (a, b) => Math.max(Math.floor(Math.min(a, b) - RADIUS - 0.5), 0);
  const last = (a, b) => Math.min(Math.ceil(Math.max(a, b) + RADIUS), FINE - 1);
  for (let row = first(ay, by); row <= last(ay, by); row++) {
    for (let column = first(ax, bx); column <= last(ax, bx); column++) {
      const [x, y] = [column + 0.5, row + 0.5];
      const along = length ? Math.min(Math.max(((x - ax) * dx + (y - ay) * dy) / length, 0), 1) : 0;
      if ((x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2 <= RADIUS ** 2) {
        dots[row * FINE + column] = 1;
      }
    }
  }
}
