"""Check a certificate and its private key before the server starts."""

import ssl
from pathlib import Path

from interlock.kernel.errors import InterlockError

VALIDITY = {9: "is not valid yet", 10: "has expired"}  # of OpenSSL's reasons to refuse a certificate
FLIGHTS = 10  # a handshake has fewer


def refuse_unusable(certificate: Path, private_key: Path) -> None:
    """Raises InterlockError if the files are no pair, or if whoever trusts the certificate would refuse it today."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    check_pair(server, certificate, private_key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    try:
        shake_hands(server, client)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in VALIDITY:
            raise InterlockError(
                f"the certificate '{certificate}' {VALIDITY[error.verify_code]}: every client would refuse it; renew it"
            ) from None


def check_pair(server: ssl.SSLContext, certificate: Path, private_key: Path) -> None:
    """The server has both.

    Raises:
        InterlockError: the text says which file is wrong.
    """
    try:
        server.load_cert_chain(certificate, private_key, password=lambda: "")  # a password is not asked for
    except ssl.SSLError as error:
        if error.reason and "MISMATCH" in error.reason:
            raise InterlockError(f"'{private_key}' is not the private key of '{certificate}'") from None
        wrong, what = (private_key, "private key without a password")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate)
        except ssl.SSLError:
            wrong, what = certificate, "certificate"
        raise InterlockError(f"'{wrong}' holds no {what} in PEM form") from None


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A client has met the server, in memory alone.

    Raises:
        ssl.SSLError: they did not agree.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there)]
    for _ in range(FLIGHTS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
