"""Requests to a stand-in that limits, breaks and delays."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator, List

import pytest

from nodeglass import (
    Client,
    NodeglassError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RateLimitedError,
    RelayUnavailableError,
    _transport,
)


class Stub:
    """A server whose responses a test states."""

    def __init__(self) -> None:
        self.paths: List[str] = []
        self.respond: Callable[[BaseHTTPRequestHandler, int], None] = lambda handler, number: send(handler, 200, b"[]")
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                stub.paths.append(self.path)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stub.respond(self, len(stub.paths))

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def client(self, timeout: float = 5.0) -> Client:
        return Client(f"http://127.0.0.1:{self.server.server_port}/base/#k=KEY", timeout=timeout)


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content_Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()


def test_the_base_path_precedes_each_path_and_absent_parameters_are_left_out(stub: Stub) -> None:
    assert stub.client().get("/api/v1/gpus", {"job": None, "free": True, "node": "a&b"}) == []
    assert stub.paths == ["/base/api/v1/gpus?free=true&node=a%26b"]


def test_retry_after_is_honoured_and_bounded(stub: Stub) -> None:
    slept: List[float] = []
    client = stub.client()
    client._transport._sleep = slept.append
    limited = b'{"detail":"too many requests"}'
    stub.respond = lambda handler, number: send(
        handler, 429 if number < 3 else 200, limited if number < 3 else b"[]", Retry_After="2"
    )
    assert client.notes() == [] and slept == [2.0, 2.0]
    stub.respond = lambda handler, number: send(handler, 429, limited, Retry_After="1")
    with pytest.raises(RateLimitedError, match="too many requests"):
        client.notes()
    assert len(slept) == 2 + _transport.RETRIES
    # A delay that nobody would wait for is reported at once.
    stub.respond = lambda handler, number: send(handler, 429, limited, Retry_After="3600")
    with pytest.raises(RateLimitedError) as refused:
        client.notes()
    assert refused.value.retry_after_s == 3600 and len(slept) == 2 + _transport.RETRIES


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, PermissionDeniedError), (404, NotFoundError), (503, RelayUnavailableError), (500, NodeglassError)],
)
def test_a_problem_becomes_an_exception_with_its_detail(stub: Stub, status: int, kind: type) -> None:
    stub.respond = lambda handler, number: send(handler, status, b'{"detail":"what to do"}')
    with pytest.raises(kind, match="what to do") as raised:
        stub.client().notes()
    assert raised.value.status == status and type(raised.value) is kind


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[7]", b'[{"id":1}]', b"\xff", b"[" * 100_000])
def test_another_structure_is_an_error_of_the_client(stub: Stub, body: bytes) -> None:
    stub.respond = lambda handler, number: send(handler, 200, body)
    with pytest.raises(ProtocolError):
        stub.client().notes()


def test_redirects_are_not_followed_with_the_key(stub: Stub) -> None:
    stub.respond = lambda handler, number: send(handler, 302, b"", Location="http://127.0.0.1:1/")
    with pytest.raises(NodeglassError, match="302"):
        stub.client().notes()
    assert len(stub.paths) == 1


def test_a_connection_that_the_relay_closed_is_replaced(stub: Stub) -> None:
    client = stub.client()

    def close_silently(handler: BaseHTTPRequestHandler, number: int) -> None:
        send(handler, 200, b"[]")
        # Without `Connection: close`, so that the client keeps its end.
        handler.close_connection = True

    stub.respond = close_silently
    assert client.notes() == []
    assert client.notes() == []
    # What changes something is not sent twice.
    with pytest.raises(RelayUnavailableError):
        client.note("x")
    assert len(stub.paths) == 2


def test_a_response_that_is_late_or_cut_off_is_an_error(stub: Stub) -> None:
    stub.respond = lambda handler, number: time.sleep(1)
    with pytest.raises(RelayUnavailableError, match="did not respond in time"):
        stub.client(timeout=0.1).notes()
    stub.respond = lambda handler, number: send(handler, 200, b"[", Content_Length="100", Connection="close")
    with pytest.raises(RelayUnavailableError):
        stub.client(timeout=0.3).notes()


@pytest.mark.parametrize("has_headers", [False, True])
def test_a_response_that_trickles_is_late_too(stub: Stub, has_headers: bool) -> None:
    complete: List[int] = []

    def trickle(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.close_connection = True
        if has_headers:
            handler.send_response(200)
            handler.send_header("Content-Length", "100")
            handler.end_headers()
        try:
            for byte in b"HTTP/1.1 200 OK and no end of this line, of which each byte is in time":
                handler.wfile.write(bytes([byte]))
                time.sleep(0.1)
            complete.append(number)
        except OSError:
            pass

    stub.respond = trickle
    with pytest.raises(RelayUnavailableError, match="did not respond in time"):
        stub.client(timeout=0.3).notes()
    if not has_headers:
        with pytest.raises(RelayUnavailableError, match="did not respond in time"):
            next(stub.client(timeout=0.3).watch(reconnect_for=0.0))
    assert complete == []


def test_a_kept_connection_has_the_whole_time_for_each_request(stub: Stub) -> None:
    client = stub.client(timeout=1.0)
    for _ in range(4):
        assert client.notes() == []
        time.sleep(0.4)


def test_a_watch_accepts_only_a_stream_of_events(stub: Stub) -> None:
    stub.respond = lambda handler, number: send(handler, 200, b"<html>", Content_Type="text/html")
    with pytest.raises(ProtocolError, match="no stream of events but text/html"):
        next(stub.client().watch())


@pytest.mark.parametrize("body", [b'{"detail":"a\\u001b[2Jb\\u202ec\\nd"}', "a\x1b[2Jb\u202ec\nd".encode()])
def test_a_message_has_no_escapes_for_a_terminal(stub: Stub, body: bytes) -> None:
    stub.respond = lambda handler, number: send(handler, 409, body)
    with pytest.raises(NodeglassError) as raised:
        stub.client().notes()
    assert str(raised.value) == "a[2Jbc d"


def test_a_response_of_unknown_length_is_read(stub: Stub) -> None:
    stub.respond = lambda handler, number: send_chunks(handler, [b"[", b" " * 3_000_000, b"]"])
    assert stub.client().notes() == []


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_response_that_is_too_long_is_an_error(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, is_chunked: bool
) -> None:
    monkeypatch.setattr(_transport, "MAX_BODY_BYTES", 10)
    respond = send_chunks if is_chunked else lambda handler, chunks: send(handler, 200, b"".join(chunks))
    stub.respond = lambda handler, number: respond(handler, [b"[", b" " * 20, b"]"])
    with pytest.raises(ProtocolError, match="too long"):
        stub.client().notes()


def send_chunks(handler: BaseHTTPRequestHandler, chunks: List[bytes]) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in [*chunks, b""]:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
