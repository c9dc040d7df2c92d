"""Artifacts of CI jobs: the files that match its globs, packed as one archive and stored as a blob."""

import gzip
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from interlock.blobs.store import read_file
from interlock.client.blobs import keep_pieces
from interlock.kernel.commands import AddArtifact
from interlock.kernel.durations import microseconds
from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.config import KEEP, CiArtifact, CiJob
from interlock.plugins.ci.globs import GlobSet
from interlock.plugins.evidence.queries import list_artifacts
from interlock.worker.context import JobContext, check_taken

MEDIA = "application/x-tar+gzip"
BYTES_MAX = 2 << 30  # of the files of an artifact


class NotFit(InterlockError):
    """The files of a job make no artifact: the job is to blame for that, and no machine."""


class NoFiles(NotFit):
    """No file of a job is one that it keeps."""


def keep_artifact(ctx: JobContext, place: str, artifact: CiArtifact) -> str:
    """Keeps an artifact of a job, and returns how much that is.

    Raises:
        NoFiles: no path matches.
        NotFit: it is too large, or a link leaves the files of the job.
        Stale: the lease is over.
    """
    assert ctx.app
    paths = find_paths(place, artifact)
    with tempfile.NamedTemporaryFile(prefix="interlock-artifact-") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
            add_files(packed, place, paths)
        file.flush()
        blob = keep_pieces(ctx.app, ctx.tenant, read_file(file.name), worker=True)
    check_taken(
        ctx.sender.send(
            AddArtifact(tenant=ctx.tenant, held=ctx.held, name=artifact.name, digest=blob.digest, media=MEDIA)
        )
    )
    return f"{len(paths)} {'file' if len(paths) == 1 else 'files'}, {blob.length:,} bytes"


def find_paths(place: str, artifact: CiArtifact) -> list[str]:
    """Returns the files that an artifact has, by their paths below the worktree.

    Raises:
        NoFiles: no file matches.
    """
    globs = GlobSet(artifact.paths)
    paths = sorted(path for path in list_files(place) if globs.match(path))
    if not paths:
        raise NoFiles(f"the artifact '{artifact.name}' has no files: no path matches {', '.join(artifact.paths)}")
    return paths


def list_files(place: str) -> Iterator[str]:
    """Yields all files and links below a folder, but those of git."""
    for root, folders, files in os.walk(place):
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]
        folders[:] = sorted(set(folders) - {".git"} - set(links))
        for name in (*files, *links):
            path = os.path.relpath(os.path.join(root, name), place)
            if path != ".git":
                yield path.replace(os.sep, "/")


def add_files(packed: gzip.GzipFile, place: str, paths: list[str]) -> None:
    """Writes files to an archive that is the same for the same files.

    Raises:
        NotFit: a file cannot be kept; the text says why.
    """
    size, root = 0, os.path.realpath(place)
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            whole = os.path.join(place, path)
            entry = archive.gettarinfo(whole, arcname=path)
            if entry is None or not (entry.isreg() or entry.issym()):
                raise NotFit(f"'{path}' is neither a file nor a link, and cannot be kept")
            if entry.issym() and not is_below(root, os.path.join(os.path.dirname(whole), entry.linkname)):
                raise NotFit(f"the link '{path}' leads out of the files of the job, and cannot be kept")
            size += entry.size
            if size > BYTES_MAX:
                raise NotFit(f"it has more than {BYTES_MAX:,} bytes, which are allowed")
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if entry.isreg():
                with open(whole, "rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)


def is_below(root: str, path: str) -> bool:
    """Whether a path, all links followed, is below a folder."""
    return os.path.commonpath((root, os.path.realpath(path))) == root


def find_kept_until(spec: Mapping[str, Any], name: str, at_us: int) -> int:
    """Returns until when an artifact is handed out that a job has kept since `at_us`; both in microseconds.

    Parameters:
        spec: of the job, as its plan has it.
    """
    artifacts = msgspec.convert(spec, CiJob).artifacts
    keep = next((artifact.keep for artifact in artifacts if artifact.name == name), KEEP)
    return at_us + microseconds(keep)


def take_artifacts_over(ctx: JobContext, attempt: int) -> list[str]:
    """Keeps the artifacts of an earlier attempt with this one too, and returns their names.

    Raises:
        Stale: the job is another worker's by now.
    """
    assert ctx.app
    names = []
    for row in ctx.app.read(list_artifacts, attempt):
        if row.value is None and not row.late:
            check_taken(
                ctx.sender.send(
                    AddArtifact(tenant=ctx.tenant, held=ctx.held, name=row.name, digest=row.digest, media=row.media)
                )
            )
            names.append(row.name)
    return names


def unpack_artifact(packed: Path, folder: Path) -> list[str]:
    """Writes the files of an archive below a folder, and returns their paths.

    Raises:
        InterlockError: it is no such archive, or a name or link in it leaves the folder; then nothing is written.
    """
    try:
        with tarfile.open(packed, mode="r:gz") as archive:
            entries = archive.getmembers()
            for entry in entries:
                tarfile.data_filter(entry, str(folder))
            archive.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise InterlockError(f"the artifact was not unpacked: {error}") from None
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InterlockError(f"the artifact cannot be unpacked: {error}") from None
    return [entry.name for entry in entries]
