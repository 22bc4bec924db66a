"""HTTP to the relay over TCP, TLS or its private socket, with bounds on time and size."""

import http.client
import os
import socket
import ssl
import threading
import time
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import urlencode

from ._decode import parse
from ._discover import Address
from .errors import (
    AuthenticationError,
    NodeglassError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RateLimitedError,
    RelayUnavailableError,
)

MAX_BODY_BYTES = 256 << 20
"""A longer response is an error."""
PIECE_BYTES = 1 << 20
"""How much of a response of unknown length is read at once."""
MAX_EVENT_LINE_BYTES = 64 << 20
"""A longer line of a stream of events is an error."""
MAX_RETRY_AFTER_S = 30.0
"""A longer delay is not waited for."""
RETRIES = 4
"""How often a request that is too early is repeated."""

Query = Mapping[str, object]


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except OSError:
            self.close()
            raise


class Transport:
    """Sends requests to one relay. Keeps an idle connection; threads and forked processes may share it."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        tls: Optional[ssl.SSLContext] = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._tls = tls
        self._sleep = sleep
        self._lock = threading.Lock()
        self._idle: Optional[Tuple[int, http.client.HTTPConnection]] = None

    def close(self) -> None:
        """Closes the idle connection."""
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None and idle[0] == os.getpid():
            idle[1].close()

    def request(self, method: str, path: str, query: Optional[Query] = None, body: Optional[bytes] = None) -> bytes:
        """Sends a request and returns the body of the response; waits where the relay asks for it."""
        target = self._target(path, query)
        for attempt in range(RETRIES + 1):
            status, headers, answer = self._exchange(method, target, body)
            if 200 <= status < 300:
                return answer
            failed = error(status, headers, answer)
            if not isinstance(failed, RateLimitedError):
                raise failed
            if attempt == RETRIES or failed.retry_after_s > MAX_RETRY_AFTER_S:
                raise failed
            self._sleep(failed.retry_after_s)
        raise AssertionError("the last attempt returns or raises")

    def events(self, path: str, query: Optional[Query], timeout: float) -> "EventStream":
        """Opens a stream of server-sent events."""
        connection = self._connect(timeout)
        try:
            connection.request("GET", self._target(path, query), headers=self._headers("text/event-stream", None))
            # Kept, because the response may take over the connection's reference to it.
            sock = connection.sock
            response = connection.getresponse()
            if response.status != 200:
                headers = {name.lower(): value for name, value in response.headers.items()}
                raise error(response.status, headers, _read(response))
        except (OSError, http.client.HTTPException) as failed:
            connection.close()
            raise self._unavailable(failed) from failed
        except NodeglassError:
            connection.close()
            raise
        return EventStream(connection, sock, response)

    def _target(self, path: str, query: Optional[Query]) -> str:
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        return self.address.base_path + path + (f"?{urlencode(given)}" if given else "")

    def _headers(self, accept: str, body: Optional[bytes]) -> Dict[str, str]:
        headers = {"Authorization": f"Bearer {self.address.key}", "Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        at = self.address
        if at.socket is not None:
            return _SocketConnection(at.socket, timeout)
        if at.scheme == "https":
            return http.client.HTTPSConnection(at.host, at.port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(at.host, at.port, timeout=timeout)

    def _exchange(self, method: str, target: str, body: Optional[bytes]) -> Tuple[int, Dict[str, str], bytes]:
        """Sends a request once, or twice if the relay had closed the idle connection meanwhile."""
        connection = self._take_idle()
        if connection is not None:
            try:
                return self._send(connection, method, target, body)
            except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest) as failed:
                connection.close()
                if method != "GET":
                    raise self._unavailable(failed) from failed
            except (OSError, http.client.HTTPException) as failed:
                connection.close()
                raise self._unavailable(failed) from failed
        connection = self._connect(self.timeout)
        try:
            return self._send(connection, method, target, body)
        except (OSError, http.client.HTTPException) as failed:
            connection.close()
            raise self._unavailable(failed) from failed

    def _send(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: Optional[bytes]
    ) -> Tuple[int, Dict[str, str], bytes]:
        connection.request(method, target, body, self._headers("application/json", body))
        response = connection.getresponse()
        try:
            answer = _read(response)
        except ProtocolError:
            connection.close()
            raise
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return response.status, headers, answer

    def _take_idle(self) -> Optional[http.client.HTTPConnection]:
        """The idle connection, unless it is the parent's: a forked process must not use its socket."""
        with self._lock:
            idle, self._idle = self._idle, None
        return idle[1] if idle is not None and idle[0] == os.getpid() else None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle, self._idle = self._idle, (os.getpid(), connection)
        if idle is not None and idle[0] == os.getpid():
            idle[1].close()

    def _unavailable(self, failed: Exception) -> RelayUnavailableError:
        why = "did not respond in time" if isinstance(failed, socket.timeout) else f"cannot be reached ({failed})"
        return RelayUnavailableError(f"the relay at {self.address} {why}")


class EventStream:
    """A stream of server-sent events. `close` may be called from another thread, and ends the iteration."""

    def __init__(
        self, connection: http.client.HTTPConnection, sock: socket.socket, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._sock = sock
        self._response = response

    def names(self) -> Iterator[str]:
        """The name of each event, until the relay ends the stream. Its data is skipped."""
        name = ""
        while True:
            try:
                line = self._response.readline(MAX_EVENT_LINE_BYTES)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                # Broken, silent for too long, or closed by another thread.
                return
            if not line.endswith(b"\n"):
                return
            if line.startswith(b"event:"):
                name = line[6:].strip().decode("ascii", "replace")
            elif line in (b"\n", b"\r\n") and name:
                yield name
                name = ""

    def close(self) -> None:
        """Ends the stream, also for a thread that waits for it."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    """The body of a response, which must not be too long."""
    too_long = ProtocolError("the response is too long; choose a job or a node")
    if response.length is not None:
        if response.length > MAX_BODY_BYTES:
            raise too_long
        return response.read()
    # In pieces: Python 3.9 allocates as much as `read` is permitted to return.
    pieces: List[bytes] = []
    length = 0
    while True:
        piece = response.read(PIECE_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        length += len(piece)
        if length > MAX_BODY_BYTES:
            raise too_long


def error(status: int, headers: Mapping[str, str], body: bytes) -> NodeglassError:
    """The exception for a response that is no success, with the relay's own sentence."""
    detail = _detail(body) or f"the relay responded with status {status}"
    if status == 401:
        return AuthenticationError(f"the key is not accepted: {detail}", status)
    if status == 403:
        return PermissionDeniedError(detail, status)
    if status == 404:
        return NotFoundError(detail, status)
    if status == 429:
        return RateLimitedError(detail, status, _seconds(headers.get("retry-after")))
    if status == 503:
        return RelayUnavailableError(detail, status)
    return NodeglassError(detail, status)


def _detail(body: bytes) -> str:
    try:
        problem = parse(body)
    except ProtocolError:
        return body[:300].decode("utf-8", "replace").strip()
    return str(problem.get("detail", "")) if isinstance(problem, dict) else ""


def _seconds(text: Optional[str]) -> float:
    try:
        return min(max(float(text or 1), 0.1), 3600.0)
    except ValueError:
        return 1.0


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
