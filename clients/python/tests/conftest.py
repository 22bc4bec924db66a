"""Starts relays with the simulated cluster. `NODEGLASS_TEST_RELAY` is the program; `cargo xtask test python` sets it."""

import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterator, Optional

import pytest

from nodeglass import Client, set_default_client

REPOSITORY = Path(__file__).resolve().parents[3]
START_S = 30.0


class DemoRelay:
    """A relay with the simulated cluster and a home of its own."""

    def __init__(self, program: str, home: Path) -> None:
        self.program = program
        self.home = home
        home.mkdir(mode=0o700, exist_ok=True)
        home.chmod(0o700)
        self.process: Optional[subprocess.Popen] = None
        self.start()

    def environment(self) -> dict:
        home = str(self.home)
        return {
            "PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home, "TMPDIR": home,
            "XDG_STATE_HOME": home + "/state", "USER": "alice",
        }  # fmt: skip

    def start(self) -> None:
        with open(self.home / "log", "wb") as log:
            self.process = subprocess.Popen(
                [self.program, "--demo", "--bind", "127.0.0.1:0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self.environment(), cwd=self.home, preexec_fn=end_with_parent,
            )  # fmt: skip
        wait_for(lambda: self.key_file.exists() or self.process.poll() is not None)
        assert self.key_file.exists(), (self.home / "log").read_text()
        wait_for(self.is_settled)

    def is_settled(self) -> bool:
        """Whether every node was read, and the history has begun."""
        with Client(self.link) as client:
            nodes = client.nodes()
            return len(nodes) > 10 and all(node.connection not in ("waiting", "connecting") for node in nodes)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    @property
    def key_file(self) -> Path:
        return self.home / "nodeglass" / f"{self.process.pid}.key"

    @property
    def link(self) -> str:
        return json.loads(self.key_file.read_text())["links"][0]

    def run(self, *arguments: str) -> str:
        """The output of a command of the relay's owner."""
        return subprocess.run(
            [self.program, *arguments], env=self.environment(), cwd=self.home, check=True, capture_output=True, text=True
        ).stdout


def end_with_parent() -> None:
    """The relay ends with pytest, also if that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def wait_for(condition: Callable[[], object], seconds: float = START_S) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition is not met in time"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def program() -> str:
    found = os.environ.get("NODEGLASS_TEST_RELAY")
    if not found:
        assert not os.environ.get("CI"), "NODEGLASS_TEST_RELAY is not set"
        pytest.skip("NODEGLASS_TEST_RELAY is not set: `cargo xtask test python` sets it")
    return found


@pytest.fixture(scope="session")
def demo(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoRelay]:
    """The relay that all tests share; they must leave it as it is."""
    relay = DemoRelay(program, tmp_path_factory.mktemp("demo"))
    yield relay
    relay.stop()


@pytest.fixture
def own_demo(program: str, tmp_path: Path) -> Iterator[DemoRelay]:
    """A relay of one test, which may kill it."""
    relay = DemoRelay(program, tmp_path / "demo")
    yield relay
    if relay.process.poll() is None:
        relay.stop()


@pytest.fixture
def client(demo: DemoRelay) -> Iterator[Client]:
    with Client(demo.link) as client:
        yield client


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No relay, key, job or GPU of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("NODEGLASS_URL", "NODEGLASS_KEY", "SLURM", "CUDA")):
            monkeypatch.delenv(name)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    set_default_client(None)
    yield
    set_default_client(None)
