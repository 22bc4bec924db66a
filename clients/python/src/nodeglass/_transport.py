"""HTTP to the relay over TCP, TLS or its private socket, with bounds on time and size."""

import http.client
import io
import os
import socket
import ssl
import threading
import time
import unicodedata
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import urlencode

from ._decode import OTHER_VERSION, parse
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
MAX_DETAIL_CHARS = 4096
"""A longer message of an error is cut."""
RETRIES = 4
"""How often a request that is too early is repeated."""

Query = Mapping[str, object]

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


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


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline. The timeout of a socket alone begins anew with each byte."""

    def __init__(self, sock: socket.socket, deadline: Optional[float]) -> None:
        self.deadline = deadline
        """Of `time.monotonic`; without one, the socket's own timeout applies to each read."""
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> Optional[int]:
        if self.deadline is not None:
            self._sock.settimeout(_remaining(self.deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _TimedSocket:
    """What `http.client` needs of a socket to read a response."""

    def __init__(self, reader: _TimedReader) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


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
            # Silence is limited by `timeout`, and only the beginning by a deadline.
            reader = _timed(connection, time.monotonic() + self.timeout)
            response = connection.getresponse()
            kind = response.headers.get_content_type()
            if response.status == 200 and kind != "text/event-stream":
                raise ProtocolError(f"the response is no stream of events but {_clean(kind)}: {OTHER_VERSION}")
            if response.status != 200:
                headers = {name.lower(): value for name, value in response.headers.items()}
                raise error(response.status, headers, _read(response))
        except (OSError, http.client.HTTPException) as failed:
            connection.close()
            raise self._unavailable(failed) from failed
        except NodeglassError:
            connection.close()
            raise
        reader.deadline = None
        sock.settimeout(timeout)
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
        deadline = time.monotonic() + self.timeout
        connection = self._take_idle()
        if connection is not None:
            try:
                return self._send(connection, deadline, method, target, body)
            except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest) as failed:
                connection.close()
                if method != "GET":
                    raise self._unavailable(failed) from failed
            except (OSError, http.client.HTTPException) as failed:
                connection.close()
                raise self._unavailable(failed) from failed
        try:
            connection = self._connect(_remaining(deadline))
        except socket.timeout as failed:
            raise self._unavailable(failed) from failed
        try:
            return self._send(connection, deadline, method, target, body)
        except (OSError, http.client.HTTPException) as failed:
            connection.close()
            raise self._unavailable(failed) from failed

    def _send(
        self,
        connection: http.client.HTTPConnection,
        deadline: float,
        method: str,
        target: str,
        body: Optional[bytes],
    ) -> Tuple[int, Dict[str, str], bytes]:
        if connection.sock is not None:
            connection.sock.settimeout(_remaining(deadline))
        connection.request(method, target, body, self._headers("application/json", body))
        _timed(connection, deadline)
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


def _remaining(deadline: float) -> float:
    """The time until a deadline in seconds; raises `socket.timeout` if it has passed."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise socket.timeout("timed out")
    return remaining


def _timed(connection: http.client.HTTPConnection, deadline: float) -> _TimedReader:
    """Limits the response that the connection reads next."""
    reader = _TimedReader(connection.sock, deadline)

    def response(_sock: socket.socket, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
        timed: Any = _TimedSocket(reader)
        return http.client.HTTPResponse(timed, *args, **kwargs)

    of_this_response: Any = response
    connection.response_class = of_this_response
    return reader


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
        return _clean(body[:300].decode("utf-8", "replace"))
    return _clean(str(problem.get("detail", ""))) if isinstance(problem, dict) else ""


def _clean(text: str) -> str:
    """A message without what a terminal would interpret or reorder, and of limited length."""
    shown = (" " if char.isspace() else char for char in text[:MAX_DETAIL_CHARS])
    # Control characters and invisible ones, such as those that change the direction of text.
    return "".join(char for char in shown if unicodedata.category(char) not in ("Cc", "Cf")).strip()


def _seconds(text: Optional[str]) -> float:
    try:
        return min(max(float(text or 1), 0.1), 3600.0)
    except ValueError:
        return 1.0


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
