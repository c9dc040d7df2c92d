"""Redis for the peers that need it: as found, or unpacked from the packages that apt offers; nothing is installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
START = 10.0  # seconds


def find_redis(folder: Path) -> Path | None:
    """A redis-server, unpacked into the folder if the machine has none; None if that cannot be."""
    if there := shutil.which("redis-server"):
        return Path(there)
    unpacked = folder / "root" / "usr" / "bin" / "redis-server"
    if not unpacked.exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, check=False)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, folder / "root"], capture_output=True, check=False)
    return unpacked if unpacked.exists() else None


@contextmanager
def redis(program: Path, folder: Path, fsync: str) -> Iterator[str]:
    """The URL of a server on loopback that appends to its file, and syncs it `always` or `everysec`."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"port": port, "bind": "127.0.0.1", "dir": folder, "save": "", "appendonly": "yes", "appendfsync": fsync}
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    libraries = os.pathsep.join(map(str, program.parent.parent.glob("lib/*-linux-gnu")))
    environment = {**os.environ, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}
    server = subprocess.Popen([program, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def wait_for(port: int) -> None:
    end = time.monotonic() + START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class Line:
    """A connection that asks for one number at a time."""

    def __init__(self, url: str) -> None:
        host, _, rest = url.removeprefix("redis://").partition(":")
        port, _, number = rest.partition("/")
        self.raw = socket.create_connection((host, int(port)))
        self.lines = self.raw.makefile("rb")
        self.ask("SELECT", number or "0")

    def ask(self, *words: str) -> str:
        parts = (f"${len(word.encode())}\r\n{word}\r\n" for word in words)
        self.raw.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return self.lines.readline().decode().strip()

    def number(self, script: str) -> int:
        """What a script of Lua answers. Raises ValueError with what the server said instead."""
        answer = self.ask("EVAL", script, "0")
        if not answer.startswith(":"):
            raise ValueError(answer)
        return int(answer[1:])

    def close(self) -> None:
        self.lines.close()
        self.raw.close()
