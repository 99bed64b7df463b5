"""Threads that compute batches of requests."""

import asyncio
import time

import numpy as np
import pytest

pytest.importorskip("prometheus_client")

from local_server import Sums

from keras_transformer.export import Batching, ExportError
from keras_transformer.export.runtime.cancellation import stoppable
from keras_transformer.export.serving.http_application import http_application
from keras_transformer.export.serving.local_replicas import LocalReplicas
from keras_transformer.export.serving.requests import RequestError


def ask(replicas, *values):
    return replicas.predict("serve", {"x": np.array([[value, 1] for value in values], "float32")})


async def settled(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_requests_that_wait_are_computed_together():
    replica = Sums()
    replicas = LocalReplicas([replica], Batching(max_batch_size=4, wait_ms=0))

    async def main():
        replica.gate.clear()
        asks = [asyncio.create_task(ask(replicas, 0))]
        await settled(lambda: replica.batches)
        others = ([1], [2, 3], [4], [5, 6, 7, 8, 9], [10])
        asks += [asyncio.create_task(ask(replicas, *values)) for values in others]
        await asyncio.sleep(0.01)
        replica.gate.set()
        return await asyncio.gather(*asks)

    answers = asyncio.run(main())
    assert replica.batches == [[1], [1, 2, 1], [5], [1]]  # What is larger than a batch is computed alone.
    assert [outputs["y"].tolist() for outputs, _ in answers] == [[1], [2], [3, 4], [5], [6, 7, 8, 9, 10], [11]]
    assert [examples for _, examples in answers] == [1, 4, 4, 4, 5, 1]
    replicas.close()


def test_two_threads_compute_at_once():
    replica = Sums()
    replicas = LocalReplicas([replica] * 2, Batching(max_batch_size=1, wait_ms=0))

    async def main():
        replica.gate.clear()
        asks = [asyncio.create_task(ask(replicas, value)) for value in range(3)]
        await settled(lambda: len(replica.batches) == 2)
        await asyncio.sleep(0.05)
        assert len(replica.batches) == 2
        replica.gate.set()
        await asyncio.gather(*asks)

    asyncio.run(main())
    assert len(replica.batches) == 3


def test_a_batch_waits_as_long_as_it_may():
    replica = Sums()
    replicas = LocalReplicas([replica], Batching(max_batch_size=3, wait_ms=150))

    async def main():
        start = time.monotonic()
        await asyncio.gather(ask(replicas, 1), ask(replicas, 2), ask(replicas, 3))
        full = time.monotonic() - start
        await asyncio.gather(ask(replicas, 1), ask(replicas, 2))
        return full, time.monotonic() - start - full

    full, waited = asyncio.run(main())
    assert replica.batches == [[1, 1, 1], [1, 1]]
    assert full < 0.14 < waited


def test_a_full_queue_refuses_and_who_has_gone_is_not_computed():
    replica = Sums()
    replicas = LocalReplicas([replica], Batching(max_batch_size=1, wait_ms=0, max_waiting=2))

    async def main():
        replica.gate.clear()
        asks = [asyncio.create_task(ask(replicas, 0))]
        await settled(lambda: replica.batches)
        asks += [asyncio.create_task(ask(replicas, value)) for value in (1, 2)]
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError) as refused:
            await ask(replicas, 3)
        assert refused.value.status == 429
        asks[1].cancel()  # It waits.
        await asyncio.sleep(0)
        asks.append(asyncio.create_task(ask(replicas, 4)))
        await asyncio.sleep(0)
        asks[0].cancel()  # It is computed.
        replica.gate.set()
        return await asyncio.gather(*asks, return_exceptions=True)

    answers = asyncio.run(main())
    assert [isinstance(each, asyncio.CancelledError) for each in answers] == [True, True, False, False]
    assert len(replica.batches) == 3


def test_errors_reach_those_who_asked():
    replica = Sums()
    replica.run = lambda requests: ([RequestError(422, "no")] + [{"y": 1}] * (len(requests) - 1), [len(requests)])
    replicas = LocalReplicas([replica], Batching(wait_ms=0))
    with pytest.raises(RequestError, match="no"):
        asyncio.run(ask(replicas, 1))
    replica.run = lambda requests: 1 / 0
    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask(replicas, 1))
    replica.run = Sums().run
    assert asyncio.run(ask(replicas, 1))[1] == 1  # The thread is there as before.
    replicas.close()
    assert not any(each.is_alive() for each in replicas._threads)


def test_bundles_that_cannot_be_served(tmp_path):
    for bundles, reason in (([], "there is none"), ([tmp_path / "a", tmp_path / "b" / "a"], "different names: a, a")):
        with pytest.raises(ExportError, match=reason):
            http_application(bundles)
    for wrong in (0, True, 1.5):
        with pytest.raises(ExportError, match="sessions must be a positive integer"):
            http_application([], sessions=wrong)


def test_what_nobody_waits_for_is_ended():
    """Of two requests in a batch the first may go; when the second has gone too, the computation ends."""

    class Stoppable(Sums):
        def run(self, requests):
            with stoppable(self.gate.set):
                return super().run(requests)

    replica = Stoppable()
    replicas = LocalReplicas([replica], Batching(max_batch_size=2, wait_ms=0))

    async def main():
        replica.gate.clear()
        alone = asyncio.create_task(ask(replicas, 0))
        await settled(lambda: replica.batches)
        pair = [asyncio.create_task(ask(replicas, value)) for value in (1, 2)]
        await asyncio.sleep(0.02)
        alone.cancel()
        await settled(lambda: len(replica.batches) == 2)  # The first computation has ended.
        replica.gate.clear()
        pair[0].cancel()
        await asyncio.sleep(0.05)
        assert not replica.gate.is_set(), "one of the batch still waits"
        pair[1].cancel()
        await settled(replica.gate.is_set)

    asyncio.run(main())
    assert replica.batches == [[1], [1, 1]]
    replicas.close()
