"""The launcher tile of JupyterLab and JupyterHub, by the entry point of jupyter-server-proxy."""

import sys
from pathlib import Path
from typing import Any, Dict

from ._program import relay


def setup() -> Dict[str, Any]:
    """How jupyter-server-proxy starts a relay and shows it.

    The relay listens on a Unix socket in a folder of the user, through which it accepts its owner without a key: Jupyter has
    authenticated the browser. Settings come from the environment of Jupyter and from the configuration file.
    """
    program = relay()
    start = [str(program)] if program else [sys.executable, "-m", "nodeglass"]
    return {
        "command": [*start, "--new", "--bind", "owner:{unix_socket}", "--base-path", "{base_url}nodeglass"],
        "unix_socket": True,
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
