"""One job at a time in a folder: two that save checkpoints or results side by side would take them for their own."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kbit_spark.errors import RunError

FILE = ".lock"
PATIENCE_S = 15.0
"""How long what is left of a killed job may take to end; its successor waits for it."""

_HELD = (errno.EAGAIN, errno.EACCES)
log = logging.getLogger(__name__)


@contextmanager
def alone_in(root: Path, key: str) -> Iterator[None]:
    """Keep other jobs out of the folder `root`, which is made if need be, for as long as this one works in it.

    The lock ends with the process, however that ends; its file stays. Storage without locks (some mounted buckets)
    keeps nobody out.

    Args:
        root: the folder.
        key: what the configuration calls it, for errors.

    Raises:
        RunError: another job works in it, or it cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / FILE, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        msg = f"cannot write into {root}: {error.strerror or error}"
        raise RunError(msg, f"make it writable, or choose another {key}") from error
    try:
        _lock(handle, root, key)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, root: Path, key: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in _HELD:
                log.warning("%s cannot be locked, so nothing keeps a second job out: %s", root, error.strerror)
                return
            if time.monotonic() >= deadline:
                holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
                msg = f"another job works in {root}: {holder}"
                raise RunError(msg, f"wait until it has ended, or choose another {key}") from error
        time.sleep(0.2)
    with suppress(OSError):  # on a full disk the lock holds, but does not say whose it is
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
