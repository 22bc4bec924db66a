"""A file system like NFS on a bad day: it passes requests on to a directory, slowly, and fails some of those that write.

python3 faulty_disk.py DIRECTORY MOUNT_POINT CONTROL

The file CONTROL has the delay of each write in ms and the percentage of writes that fail; it is read before each of them.
"""

import ctypes
import errno
import os
import random
import signal
import struct
import sys
import time

LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR, RENAME, LINK = 1, 2, 3, 4, 9, 10, 11, 12, 13
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR = 14, 15, 16, 17, 18, 20, 25, 26, 27, 28
RELEASEDIR, FSYNCDIR, CREATE, INTERRUPT, BATCH_FORGET, RENAME2 = 29, 30, 35, 36, 42, 45
WRITING = {SETATTR, MKDIR, UNLINK, RENAME, WRITE, FSYNC, CREATE, RENAME2}
FAULTS = [errno.EIO, errno.ENOSPC, errno.ESTALE]

directory, mount_point, control = map(os.fsencode, sys.argv[1:4])
paths = {1: directory}
nodes = {directory: 1}
listings = {}


def fault():
    """Waits, and returns the error of a write, or 0."""
    with open(control, encoding="ascii") as file:
        delay_ms, percent = map(int, file.read().split() or (0, 0))
    time.sleep(delay_ms / 1000)
    return random.choice(FAULTS) if random.randrange(100) < percent else 0


def attributes(found):
    return struct.pack(
        "<6Q10I",
        found.st_ino, found.st_size, found.st_blocks, int(found.st_atime), int(found.st_mtime), int(found.st_ctime),
        found.st_atime_ns % 10**9, found.st_mtime_ns % 10**9, found.st_ctime_ns % 10**9,
        found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, 4096, 0,
    )


def entry(path):
    node = nodes.setdefault(path, len(paths) + 1)
    paths[node] = path
    return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + attributes(os.lstat(path))


def within(node, name):
    return os.path.join(paths[node], name.split(b"\0")[0])


def move(old, new):
    os.rename(old, new)
    # The file that was replaced no longer has this name.
    nodes.pop(new, None)
    node = nodes.pop(old)
    nodes[new], paths[node] = node, new


def set_attributes(node, body):
    valid, _, handle, size = struct.unpack_from("<IIQQ", body)
    mode = struct.unpack_from("<I", body, 68)[0]
    if valid & 1:
        os.chmod(paths[node], mode & 0o7777)
    if valid & 8:
        os.truncate(handle if valid & 64 else paths[node], size)
    return struct.pack("<QII", 0, 0, 0) + attributes(os.lstat(paths[node]))


def list_directory(handle, offset, size):
    reply = b""
    for at, (name, kind, node) in enumerate(listings[handle][offset:], offset + 1):
        item = struct.pack("<QQII", node, at, len(name), kind) + name
        item += b"\0" * (-len(item) % 8)
        if len(reply) + len(item) > size:
            break
        reply += item
    return reply


def answer(opcode, node, body):
    """Returns the reply to a request; raises OSError."""
    if opcode in WRITING and (error := fault()):
        raise OSError(error, "injected")
    if opcode == INIT:
        return struct.pack("<4I2HIIHHI7I", 7, 31, 65536, 0, 12, 10, 131072, 1, 0, 0, 0, *[0] * 7)
    if opcode == LOOKUP:
        return entry(within(node, body))
    if opcode == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + attributes(os.lstat(paths[node]))
    if opcode == SETATTR:
        return set_attributes(node, body)
    if opcode == MKDIR:
        path = within(node, body[8:])
        os.mkdir(path, struct.unpack_from("<I", body)[0] & 0o7777)
        return entry(path)
    if opcode == UNLINK:
        path = within(node, body)
        os.unlink(path)
        nodes.pop(path, None)
        return b""
    if opcode == RMDIR:
        os.rmdir(within(node, body))
        return b""
    if opcode in (RENAME, RENAME2):
        names = body[8 if opcode == RENAME else 16 :].split(b"\0")
        move(within(node, names[0]), within(struct.unpack_from("<Q", body)[0], names[1]))
        return b""
    if opcode == LINK:
        path = within(node, body[8:])
        os.link(paths[struct.unpack_from("<Q", body)[0]], path)
        return entry(path)
    if opcode == OPEN:
        handle = os.open(paths[node], struct.unpack_from("<I", body)[0] & ~os.O_APPEND & ~os.O_NOFOLLOW)
        return struct.pack("<QII", handle, 0, 0)
    if opcode == CREATE:
        flags, mode = struct.unpack_from("<II", body)
        path = within(node, body[16:])
        handle = os.open(path, (flags & ~os.O_APPEND) | os.O_CREAT, mode & 0o7777)
        return entry(path) + struct.pack("<QII", handle, 0, 0)
    if opcode == READ:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)
    if opcode == WRITE:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)
    if opcode == STATFS:
        found = os.statvfs(directory)
        return struct.pack("<5Q4I6I", found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree,
                           found.f_bsize, found.f_namemax, found.f_frsize, 0, *[0] * 6)
    if opcode == RELEASE:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""
    if opcode in (FSYNC, FLUSH, FSYNCDIR, RELEASEDIR):
        return b""
    if opcode == OPENDIR:
        found = [(item.name, 4 if item.is_dir() else 8, item.inode()) for item in os.scandir(paths[node])]
        handle = len(listings) + 1
        listings[handle] = found
        return struct.pack("<QII", handle, 0, 0)
    if opcode == READDIR:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return list_directory(handle, offset, size)
    raise OSError(errno.ENOSYS, "not implemented")


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL)
    server = os.open("/dev/fuse", os.O_RDWR)
    options = b"fd=%d,rootmode=40700,user_id=0,group_id=0" % server
    if libc.mount(b"faulty", mount_point, b"fuse", 0, options):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    while True:
        request = os.read(server, 1 << 18)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        try:
            error, reply = 0, answer(opcode, node, request[40:])
        except (OSError, KeyError) as problem:
            error, reply = getattr(problem, "errno", errno.ESTALE) or errno.EIO, b""
        os.write(server, struct.pack("<IiQ", 16 + len(reply), -error, unique) + reply)


main()
