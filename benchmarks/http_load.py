"""Sends one body to an HTTP server over many concurrent connections and prints statistics. Runs in a separate process.

    python benchmarks/http_load.py URL BODY_FILE --connections 16 --seconds 5

It prints JSON: "seconds", "statuses" (status to count; 0 for a broken connection), and "latencies" of answers with status
200, in seconds. Connections are persistent. Imports are light, and only the headers are parsed.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import time
import urllib.parse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("body", type=pathlib.Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(load(options.url, options.body.read_bytes(), options.connections, options.seconds))))


async def load(url, body, connections, seconds):
    """Returns the output of `main`."""
    address = urllib.parse.urlsplit(url)
    head = f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    message = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    statuses, latencies = collections.Counter(), []
    start = time.perf_counter()
    clients = (_client(address, message, start + seconds, statuses, latencies) for _ in range(connections))
    await asyncio.gather(*clients)
    return {"seconds": time.perf_counter() - start, "statuses": dict(statuses), "latencies": latencies}


async def _client(address, message, end, statuses, latencies):
    """One connection, which sends the next request after each answer."""
    writer = None
    while (begin := time.perf_counter()) < end:
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(message)
            await writer.drain()
            status = await _answer(reader)
        except (OSError, EOFError, ValueError):
            status, writer = 0, None
        statuses[status] += 1
        if status == 200:
            latencies.append(time.perf_counter() - begin)
        else:
            await asyncio.sleep(0.01)
    if writer is not None:
        writer.close()


async def _answer(reader):
    """Reads an answer; returns its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    lines = head.split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    if fields.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        await reader.readexactly(int(fields["content-length"]))
    return int(lines[0].split()[1])


if __name__ == "__main__":
    main()
