// Caches every file of the page for offline use. `build.py` inserts the files and their fingerprint.

const NAME = "keras-transformer-FINGERPRINT";
const FILES = [];

self.addEventListener("install", (event) => {
  const keep = async () => {
    // Reloaded, so that the HTTP cache does not mix two versions.
    await (await caches.open(NAME)).addAll(FILES.map((path) => new Request(path, { cache: "no-cache" })));
    await self.skipWaiting();
  };
  event.waitUntil(keep());
});

self.addEventListener("activate", (event) => {
  const forget = async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith("keras-transformer-") && name !== NAME);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(forget());
});

self.addEventListener("fetch", (event) => {
  const answer = async () => (await caches.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  event.respondWith(answer());
});
