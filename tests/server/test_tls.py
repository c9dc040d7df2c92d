"""TLS with real certificates: a client that trusts the authority is answered, and what cannot work is refused at once."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from interlock.kernel.errors import InterlockError
from interlock.server.start import ServerOptions, check_options
from tests.conftest import Run
from tests.server.serving import serving

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


class Files:
    """An authority, and certificates of it for this machine, each a pair of files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, trustme.CA()

    def pair(self, name: str, begins: datetime = NOW - DAY, ends: datetime = NOW + DAY) -> tuple[Path, Path]:
        made = self.authority.issue_cert("127.0.0.1", not_before=begins, not_after=ends)
        return self.put(f"{name}.pem", b"".join(blob.bytes() for blob in made.cert_chain_pems)), self.put(
            f"{name}.key", made.private_key_pem.bytes()
        )

    def put(self, name: str, content: bytes, mode: int = 0o600) -> Path:
        file = self.folder / name
        file.write_bytes(content)
        file.chmod(mode)
        return file


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_client_that_trusts_the_authority_is_answered(files: Files) -> None:
    certificate, private_key = files.pair("good")
    more = ("--tls-cert", str(certificate), "--tls-key", str(private_key))
    trusting = ssl.create_default_context()
    files.authority.configure_trust(trusting)
    with serving(f"sqlite:///{files.folder}/work.db", *more) as (base, key, _):
        assert base.startswith("https://127.0.0.1:")
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, verify=trusting) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.post("/v1/jobs", json={"task": "a"}).status_code == 201
        with httpx.Client(base_url=base) as stranger, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY"):
            stranger.get("/healthz")
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(base.replace("https:", "http:"))


def mismatched(files: Files) -> tuple[Path, Path]:
    return files.pair("one")[0], files.pair("other")[1]


def with_password(files: Files) -> tuple[Path, Path]:
    certificate, private_key = files.pair("locked")
    key = load_pem_private_key(private_key.read_bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    return certificate, files.put("locked.key", text)


def readable(files: Files) -> tuple[Path, Path]:
    certificate, private_key = files.pair("open")
    private_key.chmod(0o644)
    return certificate, private_key


WRONG: dict[str, tuple[Callable[[Files], tuple[Path, Path]], str]] = {
    "no file": (lambda files: (files.pair("a")[0], files.folder / "none"), "none' cannot be read"),
    "no certificate": (lambda files: (files.put("a.txt", b"hello"), files.pair("a")[1]), "a.txt' holds no certificate"),
    "no key": (lambda files: (files.pair("a")[0], files.put("a.txt", b"hello")), "a.txt' holds no private key"),
    "a folder": (lambda files: (files.folder, files.pair("a")[1]), "cannot be read"),
    "another key": (mismatched, "other.key' is not the private key of"),
    "a password": (with_password, "holds no private key without a password"),
    "expired": (lambda files: files.pair("old", NOW - 2 * DAY, NOW - DAY), "old.pem' has expired"),
    "too early": (lambda files: files.pair("new", NOW + DAY, NOW + 2 * DAY), "new.pem' is not valid yet"),
    "readable": (readable, "chmod 600"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_work_is_refused(files: Files, name: str) -> None:
    make, says = WRONG[name]
    certificate, private_key = make(files)
    with pytest.raises(InterlockError, match=says):
        check_options(ServerOptions(certificate=certificate, private_key=private_key))


def test_a_public_address_with_tls_is_allowed(files: Files) -> None:
    certificate, private_key = files.pair("good")
    check_options(ServerOptions(host="0.0.0.0", certificate=certificate, private_key=private_key))


def test_the_command_refuses_in_a_sentence(files: Files, interlock: Run) -> None:
    certificate, private_key = mismatched(files)
    done = interlock(
        "serve", "--db", "sqlite:///work.db", "--tls-cert", certificate, "--tls-key", private_key, cwd=files.folder,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not the private key of" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (files.folder / "work.db").exists()
