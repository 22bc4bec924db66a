"""Finds the relay: the link of a running one in the runtime directory, or a link that the user states."""

import fcntl
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator, List, Optional
from urllib.parse import unquote, urlsplit

from ._decode import parse
from .errors import NodeglassError, ProtocolError, RelayUnavailableError

MAX_KEY_FILE_BYTES = 64 * 1024
"""Larger files are no key files, and are not read."""
MAX_SOCKET_PATH = 107
"""`sun_path` has 108 bytes including the NUL."""

NONE_RUNS = (
    "no relay of yours is running on this machine; start one with `relay`, "
    "or set NODEGLASS_URL to the link of one that can be reached from here"
)


@dataclass(frozen=True)
class Address:
    """Where a relay listens, and the key for it."""

    key: str = field(repr=False)
    """The bearer: the owner's key, `ID.KEY` of a share, or a token."""
    scheme: str = "http"
    host: str = "localhost"
    port: int = 80
    base_path: str = ""
    """The base path of the relay, empty at the root."""
    socket: Optional[str] = None
    """The relay's private socket, which is used instead of host and port."""
    pid: Optional[int] = None
    """The process id, if it was found in the runtime directory."""

    def __str__(self) -> str:
        return self.socket or f"{self.scheme}://{self.host}:{self.port}{self.base_path}"


def from_link(link: str, key: Optional[str] = None) -> Address:
    """Parses what `relay` prints: `http://127.0.0.1:8080/?v=…#k=KEY`, `…#s=ID.KEY` of a share, or an address
    without a key, which is then given separately."""
    parts = urlsplit(link if "://" in link else f"http://{link}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NodeglassError(f"expected the link of a relay such as http://127.0.0.1:8080/#k=…, not {_shown(link)}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise NodeglassError(f"the port is invalid in {_shown(link)}") from None
    prefix, _, secret = parts.fragment.partition("=")
    if prefix == "t":
        raise NodeglassError(
            "a link of `relay link --tab` is for one browser tab; use the one of `relay link`, or a token"
        )
    if secret and prefix not in ("k", "s"):
        raise NodeglassError(f"the part after # must be k=… or s=… in {_shown(link)}")
    bearer = key or unquote(secret)
    if not bearer:
        raise NodeglassError(
            f"there is no key for {_shown(link)}: use the whole link that `relay link` prints, or state key="
        )
    if not bearer.isascii() or any(one.isspace() for one in bearer):
        raise NodeglassError("the key has characters that no key has; copy it again")
    return Address(bearer, parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def _shown(link: str) -> str:
    """A link without its key, for messages."""
    return repr(link.split("#", 1)[0])


def running(pid: Optional[int] = None) -> Address:
    """The relay with this process id, or the only one of this user on this machine."""
    found = [one for folder in runtime_dirs() for one in _relays(folder)]
    if pid is not None:
        found = [one for one in found if one.pid == pid]
        if not found:
            raise RelayUnavailableError(f"no relay of yours has pid {pid}; `relay link` lists those that are running")
    if not found:
        raise RelayUnavailableError(NONE_RUNS)
    if len(found) > 1:
        pids = ", ".join(str(one.pid) for one in found)
        raise NodeglassError(f"{len(found)} relays of yours are running (pid {pids}); choose one with pid=")
    return found[0]


def runtime_dirs() -> List[Path]:
    """The directories in which a relay of this user stores its link, best first. As in the relay, a directory that
    others can access is skipped: its files could be another user's."""
    session, temporary = _absolute("XDG_RUNTIME_DIR"), _absolute("TMPDIR") or Path("/tmp")
    candidates = []
    if session is not None and _is_private(session):
        candidates.append(session / "nodeglass")
    if _is_safe_parent(temporary):
        name = f"nodeglass-{os.geteuid()}"
        candidates.append(temporary / name)
        try:
            # Where another user has taken that name, the relay chose one with a random suffix.
            candidates += sorted(one for one in temporary.iterdir() if one.name.startswith(f"{name}-"))
        except OSError:
            pass
    return [folder for folder in candidates if _is_private(folder)]


def _absolute(variable: str) -> Optional[Path]:
    path = Path(os.environ.get(variable) or "")
    return path if path.is_absolute() else None


def _is_private(folder: Path) -> bool:
    """Whether it is no link, is ours, and is inaccessible to others."""
    try:
        with _opened(folder) as descriptor:
            found = os.fstat(descriptor)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_safe_parent(folder: Path) -> bool:
    """Whether only root and we can exchange a directory of ours in it."""
    try:
        found = folder.stat()
    except OSError:
        return False
    is_closed = not found.st_mode & 0o022 or bool(found.st_mode & stat.S_ISVTX)
    return is_closed and found.st_uid in (0, os.geteuid())


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _relays(folder: Path) -> List[Address]:
    try:
        with _opened(folder) as directory:
            names = sorted(name for name in os.listdir(directory) if name.endswith(".key"))
            return [one for one in (_relay(folder, directory, name) for name in names) if one is not None]
    except OSError:
        return []


def _relay(folder: Path, directory: int, name: str) -> Optional[Address]:
    """The relay of a key file; `None` if it has ended, as its lock shows, or the file is something else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            pass
        except OSError:
            return None
        text = file.read(MAX_KEY_FILE_BYTES)
    try:
        stored = parse(text)
        address, pid = from_link(stored["links"][0]), int(stored["pid"])
    except (ProtocolError, NodeglassError, LookupError, TypeError, ValueError):
        return None
    socket = folder / f"{pid}.sock"
    # Only this user can listen there, whereas any user may take the port of a relay that has ended.
    path = str(socket) if len(os.fsencode(socket)) <= MAX_SOCKET_PATH and socket.exists() else None
    return Address(address.key, address.scheme, address.host, address.port, address.base_path, path, pid)


def find(url: Optional[str] = None, key: Optional[str] = None, pid: Optional[int] = None) -> Address:
    """The relay to use: that of `url`, of the environment, or the running one."""
    if url is not None:
        return from_link(url, key or os.environ.get("NODEGLASS_KEY"))
    if pid is None and os.environ.get("NODEGLASS_URL"):
        return from_link(os.environ["NODEGLASS_URL"], key or os.environ.get("NODEGLASS_KEY"))
    address = running(pid)
    if key is None:
        return address
    return Address(key, address.scheme, address.host, address.port, address.base_path, address.socket, address.pid)
