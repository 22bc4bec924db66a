"""The launcher tile of JupyterLab and JupyterHub, by the entry point of jupyter-server-proxy."""

import importlib
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Union

from ._program import relay


def _runtime_folders() -> Iterator[Optional[str]]:
    yield os.environ.get("XDG_RUNTIME_DIR")
    try:
        paths = importlib.import_module("jupyter_core.paths")
    except ImportError:
        return
    yield paths.jupyter_runtime_dir()


def _socket() -> Union[str, bool]:
    """The path of the relay's socket, in a folder that only its user can change.

    ``True``, where no such folder can have sockets, leaves it to jupyter-server-proxy. It uses ``/tmp``: once that was emptied,
    another user can create a socket of the same name, and would be sent Jupyter's token.
    """
    name = f"nodeglass-{os.getpid()}-{secrets.token_hex(4)}.sock"
    for folder in filter(None, _runtime_folders()):
        path = os.path.join(folder, name)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            status = os.stat(folder)
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                continue
            with socket.socket(socket.AF_UNIX) as tried:
                tried.bind(path)
            os.unlink(path)
        except OSError:
            continue
        return path
    return True


def setup() -> Dict[str, Any]:
    """How jupyter-server-proxy starts a relay and shows it.

    The relay listens on a Unix socket in a folder of the user, through which it accepts its owner without a key: Jupyter has
    authenticated the browser. Settings come from the environment of Jupyter and from the configuration file.
    """
    program = relay()
    start = [str(program)] if program else [sys.executable, "-m", "nodeglass"]
    return {
        "command": [*start, "--new", "--bind", "owner:{unix_socket}", "--base-path", "{base_url}nodeglass"],
        "unix_socket": _socket(),
        "timeout": 20,
        # A page that is open would keep an idle server from being shut down.
        "update_last_activity": False,
        "launcher_entry": {
            "enabled": program is not None,
            "title": "nodeglass",
            "icon_path": str(Path(__file__).with_name("icon.svg")),
            # JupyterLab draws the icon of a tile in this category only.
            "category": "Notebook",
        },
    }
