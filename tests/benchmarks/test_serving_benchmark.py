"""The client that puts a server under load: it counts what came back, and only what came back whole."""

import asyncio
import importlib.util
import pathlib

import pytest

pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nc\r\n0123456789ab\r\n0\r\n\r\n",
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nbroken off",
]


def http_load():
    spec = importlib.util.spec_from_file_location("http_load", FOLDER / "http_load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def _load(body, seconds):
    """The client against a server that gives one answer after another, and hangs up after the last."""
    received, answered = [], 0

    async def serve(reader, writer):
        nonlocal answered
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                assert f"Content-Length: {len(body)}\r\n".encode() in head
                received.append(await reader.readexactly(len(body)))
                answer = ANSWERS[answered % len(ANSWERS)]
                answered += 1
                writer.write(answer)
                await writer.drain()
                if answer is ANSWERS[-1]:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = await http_load().load(f"http://127.0.0.1:{port}/path", body, 1, seconds)
    server.close()
    return found, received, answered


def test_answers_are_counted_by_status_and_only_whole_ones_are_timed():
    found, received, answered = asyncio.run(_load(b'{"inputs": [1]}', seconds=0.3))
    statuses = found["statuses"]
    assert set(received) == {b'{"inputs": [1]}'}
    assert sum(statuses.values()) == answered == len(received)
    rounds = answered // len(ANSWERS)
    assert rounds > 1
    assert 2 * rounds <= statuses[200] <= 2 * rounds + 2
    assert statuses[429] - rounds in (0, 1)
    assert statuses[0] == rounds
    assert len(found["latencies"]) == statuses[200]
    assert 0 < max(found["latencies"]) < found["seconds"]
