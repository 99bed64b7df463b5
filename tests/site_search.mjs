// Asks the search of the built site, as a reader does, and compares the first hit of each question.
//
//     mkdocs build && npm install --no-save playwright-core && node tests/site_search.mjs build/site [CHROMIUM]
//
// CHROMIUM is the path of the browser, /usr/bin/chromium by default. The exit status is the number of other first hits.

import fs from 'fs';
import http from 'http';
import path from 'path';
import { chromium } from 'playwright-core';

const FIRST = {
  'Android': 'cookbook/android.html',
  'own model': 'cookbook/your_own_model.html',
  'custom layer': 'cookbook/your_own_model.html',
  'LSTM': 'cookbook/time_series.html',
  'time series': 'cookbook/time_series.html',
  'keras.applications': 'cookbook/vision.html',
  'MobileNet': 'cookbook/vision.html',
  'ESP32': 'cookbook/sensors.html',
  'tf.keras': 'migrate.html',
  'migrate': 'migrate.html',
  'TFLiteConverter': 'migrate.html',
  'tf2onnx': 'migrate.html',
  'FAQ': 'faq.html',
  'browser': 'cookbook/web.html',
  'Raspberry Pi': 'cookbook/python.html',
  'GGUF': 'cookbook/gguf.html',
  'iOS': 'cookbook/ios.html',
  'LoRA': 'cookbook/fine_tune.html',
  'quantize': 'cookbook/quantize.html',
  'which attention': 'which_attention.html',
  'serve': 'cookbook/serve.html',
  'int8': 'which_format.html',
  'ONNX': 'shipping.html',
  'chat': 'cookbook/chat.html',
  'fine-tune': 'cookbook/fine_tune.html',
};
const TYPES = { '.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript', '.json': 'application/json' };

function serve(folder) {
  return http.createServer((request, response) => {
    const file = path.join(folder, decodeURIComponent(request.url.split('?')[0]));
    if (!fs.existsSync(file) || fs.statSync(file).isDirectory()) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': TYPES[path.extname(file)] ?? 'application/octet-stream' });
    response.end(fs.readFileSync(file));
  }).listen(0);
}

async function firstHit(page, question) {
  await page.goto(`${origin}/index.html?q=${encodeURIComponent(question)}`);
  const hit = page.locator('.md-search-result__item a').first();
  const address = await hit.getAttribute('href', { timeout: 120_000 });
  return new URL(address, page.url()).pathname.slice(1);
}

const [folder, executablePath = '/usr/bin/chromium'] = process.argv.slice(2);
const server = serve(folder);
const origin = `http://localhost:${server.address().port}`;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
let others = 0;
for (const [question, expected] of Object.entries(FIRST)) {
  const found = await firstHit(page, question);
  others += found !== expected;
  console.log(`${question}: ${found}${found === expected ? '' : `, not ${expected}`}`);
}
await browser.close();
server.close();
process.exit(others);
