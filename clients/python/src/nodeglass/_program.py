"""The commands `nodeglass` and `nvl`, which start the relay that the wheel for this platform contains."""

import os
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Iterator, NoReturn, Optional

_ABSENT = """\
nodeglass: this installation has only the Python client, and no relay. Install the wheel for your platform with
`pip install nodeglass` (Linux on x86-64 or ARM), or unpack an archive of nodeglass and run its `relay`.
"""


def _candidates() -> Iterator[Path]:
    """Where an installer may have put the relay: where it recorded it, beside this command, and where scripts go."""
    try:
        recorded = metadata.files("nodeglass") or []
    except metadata.PackageNotFoundError:
        recorded = []
    yield from (Path(str(file.locate())) for file in recorded if file.name == "relay")
    yield Path(sys.argv[0]).resolve().with_name("relay")
    yield Path(sysconfig.get_path("scripts")) / "relay"


def relay() -> Optional[Path]:
    """The relay of this installation; None if only the client is installed."""
    return next((path.resolve() for path in _candidates() if os.access(path, os.X_OK)), None)


def _start(name: str) -> NoReturn:
    program = relay()
    if program is None:
        sys.stderr.write(_ABSENT)
        sys.exit(1)
    # The relay looks for its probe beside itself, not beside the name that it was started by.
    os.execv(program, [name, *sys.argv[1:]])


def main() -> NoReturn:
    """Runs `relay` with the arguments of this command."""
    _start("relay")


def nvl() -> NoReturn:
    """Runs `relay list`, as nvgpu's `nvl`."""
    _start("nvl")
