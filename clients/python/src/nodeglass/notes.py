"""Notes of a job by the job itself, without any connection: lines of a file that the probe on the node reads."""

import os
from typing import Mapping, Optional

MAX_BYTES = 16 * 1024
"""A longer line is not read; one of more than 240 bytes is shortened by the probe."""
MAX_FILE_BYTES = 256 * 1024
"""No more of a file is read."""


def note(text: str, *, environment: Optional[Mapping[str, str]] = None) -> bool:
    """Notes this moment of the job that this process belongs to, in all of its graphs and its report.

    Appends a line to a file of the rank in `~/.nodeglass-notes`. Returns `False`, without an exception, if that is not
    possible: outside of a job, without a text, or where the disk is full. A training must not fail for a note.
    """
    environment = os.environ if environment is None else environment
    job = environment.get("SLURM_JOB_ID", "")
    if not (job.isascii() and job.isdecimal()):
        return False
    rank = environment.get("SLURM_PROCID", "")
    # As `relay note` does: ranks other than the first have files of their own.
    name = f"{job}.{int(rank)}" if rank.isdecimal() and int(rank) > 0 else job
    # Newlines would be further notes. A lone surrogate, as of a file name that is no UTF-8, has no encoding.
    line = " ".join(text.split()).encode(errors="replace")[:MAX_BYTES]
    if not line:
        return False
    line += b"\n"
    folder = os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".nodeglass-notes")
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = os.open(os.path.join(folder, name), flags, 0o600)
        try:
            if os.fstat(descriptor).st_size + len(line) > MAX_FILE_BYTES:
                return False
            return os.write(descriptor, line) == len(line)
        finally:
            os.close(descriptor)
    except OSError:
        return False
