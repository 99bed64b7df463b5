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
  const lines = strokes.map((stroke) => stroke.map(({ x, y }) => [place.scale * x + place.x, place.scale * y + place.y]));
  for (let row = 0; row < FINE; row++) {
    for (let column = 0; column < FINE; column++) {
      if (lines.some((line) => isNear(line, column + 0.5, row + 0.5))) {
        pixels[Math.floor(row / BLOCK) * SIDE + Math.floor(column / BLOCK)] += 1;
      }
    }
  }
  return pixels;
}

function isNear(line, x, y) {
  for (let index = 0; index < line.length; index++) {
    const [ax, ay] = line[index];
    const [bx, by] = line[Math.min(index + 1, line.length - 1)];
    const [dx, dy] = [bx - ax, by - ay];
    const length = dx * dx + dy * dy;
    const along = length ? Math.min(Math.max(((x - ax) * dx + (y - ay) * dy) / length, 0), 1) : 0;
    if ((x - ax - along * dx) ** 2 + (y - ay - along * dy) ** 2 <= RADIUS ** 2) {
      return true;
    }
  }
  return false;
}
