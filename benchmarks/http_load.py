"""Sends one body to an HTTP server over many concurrent connections and prints statistics. Runs in a separate process.

    python benchmarks/http_load.py URL BODY_FILE --connections 16 --seconds 5 --header Name=value
    python benchmarks/http_load.py URL BODY_FILE --connections 64 --rate 200

It prints JSON: "seconds", "statuses" (status to count; 0 for a broken connection), and "latencies" of answers with status
200, in seconds. Connections are persistent. Imports are light, and only the headers are parsed.

Without a rate each connection sends its next request after each answer. With one, requests have their times beforehand, in
even steps, and a latency counts from that time: a request that had to wait for a connection has waited.
"""

import argparse
import asyncio
import collections
import itertools
import json
import pathlib
import time
import urllib.parse

try:
    from uvloop import run
except ImportError:
    from asyncio import run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("body", type=pathlib.Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, help="requests per second; default: as many as are answered")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    body, rate = options.body.read_bytes(), options.rate
    print(json.dumps(run(load(options.url, body, options.connections, options.seconds, rate, options.header))))


def message_of(url, body, headers):
    """Returns the bytes of a request."""
    address = urllib.parse.urlsplit(url)
    fields = {"Host": address.netloc, "Content-Type": "application/json", "Content-Length": len(body)}
    fields |= dict(each.split("=", 1) for each in headers)
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {address.path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def load(url, body, connections, seconds, rate=None, headers=()):
    """Returns the output of `main`."""
    address, message = urllib.parse.urlsplit(url), message_of(url, body, headers)
    statuses, latencies = collections.Counter(), []
    start = time.perf_counter()
    end = start + seconds
    steps = itertools.count()

    async def begin():
        """When the next request begins, or the end."""
        if rate is None:
            return time.perf_counter()
        planned = start + next(steps) / rate
        await asyncio.sleep(min(planned, end) - time.perf_counter())
        return planned

    clients = (_client(address, message, begin, end, statuses, latencies) for _ in range(connections))
    await asyncio.gather(*clients)
    return {"seconds": time.perf_counter() - start, "statuses": dict(statuses), "latencies": latencies}


async def _client(address, message, begin, end, statuses, latencies):
    """One connection."""
    writer = None
    while (began := await begin()) < end:
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
            latencies.append(time.perf_counter() - began)
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
