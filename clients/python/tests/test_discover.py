"""Links, and the runtime directory: what is accepted, and what is not a relay of ours."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodeglass import NodeglassError, RelayUnavailableError
from nodeglass._discover import find, from_link, running, runtime_dirs

SECRET = "Secret0123"


def relay(folder: Path, number: int, **changes: Any) -> int:
    """Writes the key file of a relay that runs as long as the descriptor is open."""
    folder.mkdir(mode=0o700, exist_ok=True)
    stored = {"pid": number, "links": [f"http://127.0.0.1:{number}/#k={SECRET}{number}"], **changes}
    descriptor = os.open(folder / f"{number}.key", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(stored).encode())
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("http://127.0.0.1:8080/?v=abc#k=KEY", ("http", "127.0.0.1", 8080, "", "KEY")),
        ("https://gpu.example.org/alice/#s=id.KEY", ("https", "gpu.example.org", 443, "/alice", "id.KEY")),
        ("http://[::1]:9/#k=KEY", ("http", "::1", 9, "", "KEY")),
        ("127.0.0.1:8080#k=KEY", ("http", "127.0.0.1", 8080, "", "KEY")),
    ],
)
def test_a_whole_link_is_accepted(link: str, expected: tuple) -> None:
    address = from_link(link)
    assert (address.scheme, address.host, address.port, address.base_path, address.key) == expected


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("http://127.0.0.1:8080/", "there is no key"),
        ("ftp://host/#k=" + SECRET, "expected the link of a relay"),
        ("http://host:99999/#k=" + SECRET, "the port is invalid"),
        ("http://host/#t=" + SECRET, "for one browser tab"),
        ("http://host/#x=" + SECRET, "must be k=… or s=…"),
        ("http://host/#k=a%0d%0aHost: b" + SECRET, "characters that no key has"),
    ],
)
def test_a_wrong_link_is_explained_without_its_key(link: str, message: str) -> None:
    with pytest.raises(NodeglassError, match=message) as refused:
        from_link(link)
    assert SECRET not in str(refused.value)


def test_a_key_is_not_shown() -> None:
    address = from_link(f"http://host/#k={SECRET}")
    assert SECRET not in repr(address) and SECRET not in str(address)


def test_the_only_running_relay_is_found(tmp_path: Path) -> None:
    with pytest.raises(RelayUnavailableError, match="no relay of yours is running"):
        running()
    first = relay(tmp_path / "nodeglass", 17)
    assert (running().port, running().key) == (17, SECRET + "17")
    second = relay(tmp_path / "nodeglass", 18)
    with pytest.raises(NodeglassError, match=r"2 relays of yours are running \(pid 17, 18\); choose one with pid="):
        running()
    assert running(pid=18).port == 18
    # The kernel releases the lock of a killed relay; its file is a remnant.
    os.close(second)
    assert running().pid == 17
    os.close(first)


def test_strange_files_are_no_relays(tmp_path: Path) -> None:
    folder = tmp_path / "nodeglass"
    locked = [relay(folder, 1, links=[]), relay(folder, 2, links=["http://x/"]), relay(folder, 3, pid="x")]
    (folder / "4.key").symlink_to("/etc/passwd")
    (folder / "5.key").mkdir()
    os.mkfifo(folder / "6.key")
    for name, text in {"7.key": b"\xff{", "8.key": b"[]"}.items():
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT)
        os.write(descriptor, text)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        locked.append(descriptor)
    with pytest.raises(RelayUnavailableError):
        running()
    for descriptor in locked:
        os.close(descriptor)


def test_a_directory_that_others_can_access_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, temporary = tmp_path / "session", tmp_path / "temporary"
    session.mkdir(mode=0o700)
    temporary.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    monkeypatch.setenv("TMPDIR", str(temporary))
    ours, alternative = temporary / f"nodeglass-{os.geteuid()}", temporary / f"nodeglass-{os.geteuid()}-00ff"
    for folder in (session / "nodeglass", ours, alternative):
        folder.mkdir(mode=0o700)
    assert runtime_dirs() == [session / "nodeglass", ours, alternative]
    session.chmod(0o755)
    ours.chmod(0o750)
    assert runtime_dirs() == [alternative]
    alternative.rmdir()
    alternative.symlink_to(session / "nodeglass")
    assert runtime_dirs() == []
    # Others could exchange it, unless the parent has the sticky bit.
    ours.chmod(0o700)
    temporary.chmod(0o777)
    assert runtime_dirs() == []
    temporary.chmod(0o1777)
    assert runtime_dirs() == [ours]


def test_a_separate_key_replaces_that_of_the_owner(tmp_path: Path) -> None:
    descriptor = relay(tmp_path / "nodeglass", 17)
    assert find(key="a.token").key == "a.token" and find(key="a.token").port == 17
    os.close(descriptor)


def test_a_key_alone_is_for_the_relay_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEGLASS_URL", "http://login1:9000/")
    monkeypatch.setenv("NODEGLASS_KEY", "of.environment")
    assert (find(key="a.token").host, find(key="a.token").key) == ("login1", "a.token")
    assert find().key == "of.environment"
