"""The waiting requests of an engine: priorities, and users who take turns."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_transformer.generation.engine.request import Request

# Reading a token costs less than writing one, for which the model is called alone: the weights of the paper's evaluation.
READ, WRITTEN = 1, 2


class WaitingQueue:
    """Waiting requests, of which the next is chosen by priority, then by what its user has received, then by arrival.

    The queue counts the tokens that the model reads and writes for each user. The next request is that of the user with
    the smallest count, so a user with many requests does not delay others by more than the requests that run. A user who
    was away starts at the smallest count of those who are there: an absence saves nothing up. Without users, or with one,
    requests are served first come, first served.

    Reference: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024 (arXiv 2401.00588), algorithm 2, with
    priorities before the counts, and requests that were preempted in the queue again.

    Example:

    >>> from types import SimpleNamespace
    >>> queue = WaitingQueue()
    >>> for number, user in enumerate(["a", "a", "b"]):
    ...     queue.add(SimpleNamespace(number=number, priority=0, user=user))
    >>> queue.charge("a", written=5)
    >>> queue.next.user
    'b'
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._charges: collections.Counter[Hashable] = collections.Counter()
        # The number of requests of each user, waiting or running.
        self._present: collections.Counter[Hashable] = collections.Counter()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """Iterates over the waiting requests in order of arrival."""
        return iter(list(self._requests))

    @property
    def next(self) -> Request:
        """`Request`: the one to run next. Raises `ValueError` if there is none."""
        return min(self._requests, key=lambda each: (-each.priority, self._charges[each.user], each.number))

    def enter(self, user: Hashable) -> None:
        """Counts a new request of a user."""
        if not self._present[user]:
            self._charges[user] = max(self._charges[user], self._least())
        self._present[user] += 1

    def leave(self, user: Hashable) -> None:
        """Counts a request of a user as finished. Users who are away are forgotten when the others have received as much."""
        self._present[user] -= 1
        if self._present[user]:
            return
        del self._present[user]
        least = self._least()
        for each in [each for each, count in self._charges.items() if each not in self._present]:
            if not self._present or self._charges[each] <= least:
                del self._charges[each]

    def num_requests(self, user: Hashable) -> int:
        """Returns the number of requests of a user, waiting or running."""
        return self._present.get(user, 0)

    def charge(self, user: Hashable, read: int = 0, written: int = 0) -> None:
        """Adds tokens to what a user has received."""
        self._charges[user] += READ * read + WRITTEN * written

    def add(self, request: Request) -> None:
        """Puts a request in the queue, in order of arrival."""
        self._requests.append(request)
        self._requests.sort(key=lambda each: each.number)

    def remove(self, request: Request) -> None:
        """Takes a request out of the queue."""
        self._requests.remove(request)

    def _least(self) -> int:
        return min((self._charges[each] for each in self._present), default=0)
