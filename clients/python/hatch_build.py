"""Puts the programs of nodeglass into the wheel for a platform.

Without `NODEGLASS_PROGRAMS` the wheel is the client alone. With it, the programs of that folder (`relay`, `node-probe`, and
`node-probe-MACHINE` for nodes with another processor) become scripts, `share/` the man pages and shell completions, and
`NODEGLASS_PLATFORM` (`manylinux2014_x86_64`) the platform of the wheel. A bill of materials there is put beside the metadata (PEP 770).
"""

import os
from pathlib import Path
from typing import Any, Dict

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the programs."""

    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        """Adds scripts, data and the tag of the platform, unless no programs are given."""
        folder = os.environ.get("NODEGLASS_PROGRAMS")
        if not folder or version == "editable" or self.target_name != "wheel":
            return
        programs = Path(folder)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["NODEGLASS_PLATFORM"]
        build_data["shared_scripts"] = {
            str(file): file.name
            for file in sorted(programs.iterdir())
            if file.name == "relay" or file.name.startswith("node-probe")
        }
        build_data["sbom_files"] = [str(file) for file in programs.glob("*.cdx.json")]
        share = programs / "share"
        if share.is_dir():
            build_data["shared_data"] = {str(share): "share"}
