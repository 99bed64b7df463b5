// Reads a binary PGM or PPM image into pixels from 0 to 255. `bytes`: a Uint8Array. `shape`: that of the model's input,
// (batch, height, width, channels), whose size the image must have.
export function readImage(bytes, [, height, width, channels]) {
  const header = /^P([56])\s+(\d+)\s+(\d+)\s+255\s/.exec(String.fromCharCode(...bytes.subarray(0, 64)));
  if (!header) {
    throw new Error("not a PGM or PPM image of 8 bits");
  }
  const size = [Number(header[3]), Number(header[2]), header[1] === "5" ? 1 : 3];
  const pixels = Float32Array.from(bytes.subarray(header[0].length));
  if (String(size) !== String([height, width, channels]) || pixels.length !== height * width * channels) {
    throw new Error(`an image of ${size.join("x")}; the model takes ${height}x${width}x${channels}`);
  }
  return pixels;
}
