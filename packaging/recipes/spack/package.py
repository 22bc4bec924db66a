# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""A Spack package of the released programs, for Spack 1.0 and newer."""

import os  # @BESIDE@
import platform

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *

_ARCHIVES = {
    "@VERSION@": {
        "x86_64": "@SHA256_X86_64@",
        "aarch64": "@SHA256_AARCH64@",
    },
}


class Nodeglass(Package):
    """Shows every GPU of a SLURM user's jobs in a browser tab, from a relay on the login node that runs as the user."""

    homepage = "@HOMEPAGE@"

    license("MIT OR Apache-2.0")

    for _version, _hashes in _ARCHIVES.items():
        _machine = platform.machine()
        if _machine in _hashes:
            version(
                _version,
                sha256=_hashes[_machine],
                url=f"@URL@/nodeglass-{_version}-linux-{_machine}.tar.gz",
                url=f"file://{os.getcwd()}/nodeglass-{_version}-linux-{_machine}.tar.gz",  # @BESIDE@
            )

    conflicts("platform=darwin")
    conflicts("platform=windows")

    def install(self, spec, prefix):
        mkdirp(prefix.bin)
        for program in find(".", ["relay", "node-probe*"], recursive=False):
            install(program, prefix.bin)
        symlink("relay", prefix.bin.nodeglass)
        symlink("relay", prefix.bin.nvl)
        install_tree("share", prefix.share)
        mkdirp(prefix.share.doc.nodeglass)
        for text in find(".", ["LICENSE-*", "*.cdx.json"], recursive=False):
            install(text, prefix.share.doc.nodeglass)

    @run_after("install")
    def check_version(self):
        Executable(self.prefix.bin.relay)("--version")
