"""Commands of blobs."""

from interlock.kernel.commands.base import Command, Route


class AddBlob(Command[bool], frozen=True, kw_only=True):
    """The bytes of this name were written: the database knows of them from now on. Answers whether it did not before.

    One that nothing uses is deleted after a day.
    """

    committer = Route.OTHER
    scope = "admin"
    public = False

    digest: str  # SHA-256 in hexadecimal
    length: int  # bytes
