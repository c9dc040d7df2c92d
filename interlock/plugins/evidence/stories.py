"""What the simulation plays of blobs and logs, while faults strike."""

from typing import Any

from interlock.blobs.store import write_pieces
from interlock.core.plugin import Storyteller
from interlock.kernel.blobs import BlobRef, format_reference
from interlock.kernel.commands import (
    AddArtifact,
    AddBlob,
    AppendLog,
    Claim,
    Emit,
    Finish,
    LeaseGrant,
    LeaseRef,
    LogEntry,
    Outcome,
    Register,
    Start,
    Submit,
    Work,
)
from interlock.plugins.evidence.queries import read_log_part
from interlock.store.connection import Connection

QUEUE = "raw"  # of workers that are no program
NOTHING_TO_DO = b'{"acts": []}'  # for a worker of the simulation that gets it instead
PAUSES = (0.0, 0.1, 1.5, 6.0)  # seconds; after the longest ones a lease may be over
LINES = 6
READ = 1024 * 1024  # bytes


def write_blob(connection: Connection, tenant: int, data: bytes) -> BlobRef | None:
    """Bytes are written beside the database."""
    return write_pieces(connection.blobs, tenant, [data]) if connection.blobs else None


async def log_under_a_lease(teller: Storyteller) -> None:
    """A holder adds to its log, sends again what got no answer, and goes on after it may have lost its lease."""
    blob = teller.read(write_blob, NOTHING_TO_DO)
    if not isinstance(blob, BlobRef) or await teller.ask(AddBlob(digest=blob.digest, length=blob.length)) is None:
        return
    work = Work(task="play", queue=QUEUE, input=format_reference(blob))
    await teller.ask(Submit(work=(work,), actor="evidence"))
    name = f"evidence-{teller.random.getrandbits(40):x}"
    worker = await teller.ask(Register(name=name, incarnation="1", capacity=4))
    if not isinstance(worker, int):
        return
    grants = await teller.ask(Claim(worker=worker, key=name, nonce=f"{name:0>32}", queues=(QUEUE,), limit=2))
    for grant in grants if isinstance(grants, list) else ():
        await hold_and_log(teller, grant, blob)


async def hold_and_log(teller: Storyteller, grant: LeaseGrant, blob: BlobRef) -> None:
    """Every line is sent until it is kept, from where the engine says that it has come to."""
    held, text, sent = LeaseRef(grant.unit, grant.fence, grant.lease), b"", 0
    await teller.ask(Start(held=(held,)))
    for number in range(teller.random.randrange(1, LINES)):
        text += b"line %d of fence %d\n" % (number, grant.fence)
        emits = (Emit(sent, len(text), ""),) if number % 2 else ()
        answer: Any = await teller.ask(AppendLog(entries=(LogEntry(held, sent, text[sent:], emits),)))
        if isinstance(answer, list) and answer[0].accepted:
            sent = answer[0].length
            check_kept(teller, grant, text[:sent])
        await teller.pause(teller.random.choice(PAUSES))
    await teller.ask(AddArtifact(held=held, name="report", digest=blob.digest))
    if teller.random.random() < 0.7:
        await teller.ask(Finish(outcomes=(Outcome(held=held),)))


def check_kept(teller: Storyteller, grant: LeaseGrant, text: bytes) -> None:
    """What was accepted is in the log, once and in order.

    Raises:
        AssertionError: it is not.
    """
    part = teller.read(read_log_part, grant.unit, grant.attempt, 0, READ)
    assert part is None or part.data.count(text) == 1 or part.start, f"{part.data!r} lacks {text!r}, or has it twice"
