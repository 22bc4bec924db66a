"""Snapshots after each change, driven by the relay's server-sent events.

An event only says that something changed; what the snapshots contain is read again. The messages of the live wire refer
to positions in tables that a client would have to maintain, and follow the wire's version, not that of the API.
"""

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Callable, Generator, Iterator, Optional

from . import models
from ._transport import EventStream
from .errors import AuthenticationError, NodeglassError, NotFoundError, RelayUnavailableError

if TYPE_CHECKING:
    from .client import Client

EVENTS_TIMEOUT_S = 45.0
"""A stream that is silent for so long is dead: the relay sends a comment every 15 s."""
FIRST_RETRY_S = 0.25
"""Delay before the first attempt to reconnect; doubled up to `MAX_RETRY_S`."""
MAX_RETRY_S = 5.0


def watch(
    client: "Client", job: Optional[int], node: Optional[str], interval: float, reconnect_for: float
) -> Iterator[models.Snapshot]:
    """See `Client.watch`."""
    delay, lost_at = FIRST_RETRY_S, None
    while True:
        try:
            with closing(_stream(client, job, node, interval)) as snapshots:
                for snapshot in snapshots:
                    delay, lost_at = FIRST_RETRY_S, None
                    yield snapshot
            lost: NodeglassError = RelayUnavailableError("the relay ended the stream of events")
        except (RelayUnavailableError, AuthenticationError, NotFoundError) as error:
            # A restarted relay has another key, so a wrong one is final only if no other relay is found.
            if isinstance(error, AuthenticationError) and not client.rediscover():
                raise
            # A restarted relay may not have read the list of jobs yet.
            if isinstance(error, NotFoundError) and lost_at is None:
                raise
            lost = error
        now = time.monotonic()
        lost_at = now if lost_at is None else lost_at
        if now + delay - lost_at > reconnect_for:
            raise lost
        time.sleep(delay)
        delay = min(2 * delay, MAX_RETRY_S)
        client.rediscover()


class _Changes:
    """Remembers that something changed since the last look. A thread reads the stream, so that a slow consumer of
    the snapshots does not hold up the relay."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._condition = threading.Condition()
        self._has_changed = False
        self._has_ended = False
        threading.Thread(target=self._read, name="nodeglass-watch", daemon=True).start()

    def _read(self) -> None:
        for name in self._stream.names():
            if name == "bye":
                break
            # Histories change nothing that a snapshot shows.
            if name != "histories":
                self._set(has_changed=True)
        self._set(has_ended=True)

    def _set(self, has_changed: bool = False, has_ended: bool = False) -> None:
        with self._condition:
            self._has_changed |= has_changed
            self._has_ended |= has_ended
            self._condition.notify_all()

    def wait(self) -> bool:
        """Waits for a change and forgets it; `False` if the stream has ended."""
        with self._condition:
            self._condition.wait_for(lambda: self._has_changed or self._has_ended)
            self._has_changed = False
            return not self._has_ended


def _stream(
    client: "Client", job: Optional[int], node: Optional[str], interval: float
) -> Generator[models.Snapshot, None, None]:
    """The snapshots of one connection. It is opened before the first is read, so that no change is missed."""
    stream = client._transport.events("/api/v1/events", {"job": job, "node": node}, EVENTS_TIMEOUT_S)
    try:
        changes = _Changes(stream)
        while changes.wait():
            due = time.monotonic() + interval
            yield _read(client, job, node)
            time.sleep(max(due - time.monotonic(), 0.0))
    finally:
        stream.close()


def _read(client: "Client", job: Optional[int], node: Optional[str]) -> models.Snapshot:
    if job is not None:
        return _unless_gone(
            lambda: models.Snapshot(
                jobs=[client.job(job)],
                nodes=client.nodes(job=job),
                gpus=client.gpus(job=job),
                processes=client.processes(job=job),
            )
        )
    if node is not None:
        return _unless_gone(
            lambda: models.Snapshot(
                jobs=client.jobs(node=node),
                nodes=[client.node(node)],
                gpus=client.gpus(node=node),
                processes=client.processes(node=node),
            )
        )
    return client.snapshot()


def _unless_gone(read: Callable[[], models.Snapshot]) -> models.Snapshot:
    """A snapshot; empty if the job has left SLURM's list, or no job runs on the node any more, which may return."""
    try:
        return read()
    except NotFoundError:
        return models.Snapshot()
