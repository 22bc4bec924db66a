"""The package as it is installed: types, and the wheel."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

PROJECT = Path(__file__).parents[1]


def run(*command: str, **env: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=PROJECT, capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sources_are_typed_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    run("mypy", "--cache-dir", str(tmp_path))


def test_the_wheel_contains_types_and_licenses_and_runs_alone(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    run("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), ".")
    (wheel,) = tmp_path.glob("nodeglass-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "nodeglass/py.typed" in names and "nodeglass/callbacks/keras.py" in names
    assert any(name.endswith("licenses/LICENSE-MIT") for name in names)
    assert not any("test" in name or "tools" in name for name in names)
    # With nothing but the standard library.
    command = "import nodeglass; print(nodeglass.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {command}"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert str(wheel) in done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands in an environment that has nothing but the wheel with the programs that were built."""
    pytest.importorskip("hatchling")
    relay = Path(os.environ["NODEGLASS_TEST_RELAY"])
    programs, wheels, venv = (tmp_path_factory.mktemp(name) for name in ("programs", "wheels", "venv"))
    for name in ("relay", "node-probe"):
        # Debug information would take most of the time.
        if shutil.which("strip"):
            subprocess.run(["strip", "-o", programs / name, relay.with_name(name)], check=True)
        else:
            shutil.copy(relay.with_name(name), programs / name)
    wheel = ("hatchling", "build", "-t", "wheel", "-d", str(wheels))
    run(*wheel, NODEGLASS_PROGRAMS=str(programs), NODEGLASS_PLATFORM="linux_" + os.uname().machine)
    (file,) = wheels.glob("nodeglass-*-py3-none-linux_*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    run("pip", "--python", str(venv / "bin/python"), "install", "-q", "--no-deps", "--no-index", str(file))
    return venv / "bin"


def test_an_installed_wheel_runs_the_relay_with_its_probe(installed: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    env = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]}

    def output(*command: str) -> str:
        return subprocess.run(
            [installed / command[0], *command[1:]], env=env, check=True, capture_output=True, text=True
        ).stdout

    assert output("nodeglass", "--version") == output("relay", "--version")
    assert output("python", "-m", "nodeglass", "--version") == output("relay", "--version")
    assert "list" in output("nvl", "--help")
    relay = subprocess.Popen(
        [installed / "nodeglass", "--local", "--bind", "127.0.0.1:0"],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # This machine has samples only if the relay found its probe.
        script = "import nodeglass; print(*(node.connection for node in nodeglass.Client().nodes()))"
        while relay.poll() is None:
            done = subprocess.run([installed / "python", "-c", script], env=env, capture_output=True, text=True)
            if "live" in done.stdout:
                break
            time.sleep(0.1)
        assert relay.poll() is None, done.stderr
    finally:
        relay.terminate()
        relay.wait()


def test_the_entry_point_for_jupyter_opens_the_page_without_a_key(
    installed: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As jupyter-server-proxy does with a wheel that is installed in its environment."""
    tmp_path.chmod(0o700)
    # The paths of sockets are short.
    runtime = tmp_path_factory.mktemp("s")
    runtime.chmod(0o700)
    script = (
        "import json; from importlib.metadata import distribution\n"
        "points = distribution('nodeglass').entry_points\n"
        "(point,) = [point for point in points if point.group == 'jupyter_serverproxy_servers']\n"
        "print(json.dumps([point.name, point.load()()]))"
    )

    def point() -> Tuple[str, Dict[str, Any]]:
        env = {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        done = subprocess.run([installed / "python", "-c", script], check=True, capture_output=True, text=True, env=env)
        name, server = json.loads(done.stdout)
        return name, server

    name, server = point()
    socket_path = server["unix_socket"]
    assert name == "nodeglass" and server["launcher_entry"]["enabled"]
    # Nobody else can take its name, and it is not there before the relay.
    assert Path(socket_path).parent == runtime and not os.path.exists(socket_path)
    assert point()[1]["unix_socket"] != socket_path
    runtime.chmod(0o777)
    assert point()[1]["unix_socket"] is True
    runtime.chmod(0o700)
    assert Path(server["launcher_entry"]["icon_path"]).is_file()

    def status(path: str) -> int:
        connection = http.client.HTTPConnection("jupyter")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(socket_path)
        connection.request("GET", path)
        return connection.getresponse().status

    command = [part.format(unix_socket=socket_path, base_url="/user/alice/") for part in server["command"]]
    env = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": os.environ["PATH"], "NODEGLASS_DEMO": "true"}
    relay = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while relay.poll() is None and not os.path.exists(socket_path):
            time.sleep(0.1)
        for path in ("/user/alice/nodeglass/", "/user/alice/nodeglass/api/v1/jobs"):
            assert status(path) == 200, path
    finally:
        relay.terminate()
        relay.wait()


def test_the_client_alone_says_how_to_get_the_relay(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodeglass", "--demo"], capture_output=True, text=True, cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT / "src")},
    )  # fmt: skip
    assert done.returncode == 1 and "pip install nodeglass" in done.stderr and "Traceback" not in done.stderr
