"""The text server around a formula, called without sockets."""

import dataclasses

import numpy as np

from keras_transformer.generation import Engine, GenerationSpec, Generator
from keras_transformer.generation.engine.http import application
from keras_transformer.text import Characters

TOKENIZER = Characters('abcdefgh {}[]":,0123456789\n')


class Formula:
    """A model whose next token follows from the last one. It stores nothing."""

    model_version = 0
    keeps_slots, keeps_states = True, False
    chunk_size = 8
    spec = GenerationSpec(TOKENIZER.vocabulary_size, None, False)

    def __init__(self, num_blocks, block_size):
        self.spec = dataclasses.replace(self.spec, max_length=(num_blocks - 1) * block_size)

    def step(self, token_ids, tables, cache_index, states):
        words = np.arange(self.spec.vocabulary_size)
        return np.array([np.cos(words * (1 + row[-1])) for row in token_ids], "float32")

    def copy(self, pairs):
        pass

    def reset(self):
        pass


class Model:
    """What an engine serves."""

    def generator(self):
        return Generator(Formula(41, 4), TOKENIZER)

    def paged_steps(self, num_blocks, block_size, **options):
        return Formula(num_blocks, block_size)


def engine():
    """Returns an engine with a small cache."""
    return Engine(Model(), max_batch_size=3, num_blocks=40, block_size=4, max_waiting=8)


async def answer(served, path, body):
    """Returns status and body of the answer to a request."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent = []

    async def receive():
        if messages:
            return messages.pop()
        import asyncio

        await asyncio.sleep(3600)  # The client waits.

    async def send(message):
        sent.append(message)

    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"host", b"localhost"),
    ]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path}
    scope |= {"raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "headers": headers}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
    await application(served, "tiny")(scope, receive, send)
    status = next(each["status"] for each in sent if each["type"] == "http.response.start")
    return status, b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
