"""Writes the state folder from the feed: every transition as it is committed, and documents at most once a second."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id, parse_id
from interlock.plugins.state_files.documents import (
    CountedMoves,
    Overview,
    StoredGraph,
    count_moves,
    list_workstreams,
    read_graph,
    read_overview,
)
from interlock.plugins.state_files.folder import ARCHIVES, CURRENT, StateFolder
from interlock.plugins.state_files.transitions import PAGE, LoggedTransition, TransitionPage, read_transitions

EVERY = 1.0  # seconds between two documents of one kind, at least
SHARE = 10  # documents are written for at most a tenth of the time
POLL_SECONDS = 0.25  # between two looks at a database in which nothing new has happened
Read = Callable[..., Any]  # asks a query of the plugin, beside the database or over HTTP
ReadPlan = Callable[[int], Any]  # reads the execution plan of a workstream
WriteArchive = Callable[[int, Path], bool]  # writes a workstream that has ended to a new file; False: not yet


class Exporter:
    """Keeps a state folder as the database is. Only this object writes to it."""

    def __init__(
        self, folder: StateFolder, read: Read, read_plan: ReadPlan | None = None,
        write_archive: WriteArchive | None = None, page: int = PAGE,
    ) -> None:  # fmt: skip
        """`write_archive` is left out where there is no database to read whole trees from, as over HTTP."""
        self.folder, self.read, self.page = folder, read, page
        self.read_plan, self.write_archive = read_plan, write_archive
        self.cursor = folder.cursor
        self.known = folder.last.metadata.event_id if folder.last else ""  # the line that was written last
        self.counts, self.counted = folder.read_counts()  # by kind and state, and up to which cursor
        self.changed: set[int] = set()  # workstreams whose documents are to be written
        self.open: set[int] = set()  # those that may not have ended
        self.is_new = True  # no documents were written yet: those of a writer before may be older than the log
        self.ended: set[int] = set()  # workstreams that may have to be archived
        self.moved = True  # something has happened since the overview was written
        self.next_at = 0.0  # when documents may be written again

    def copy_page(self) -> bool:
        """Adds the next transitions to the log. Returns whether there are more already.

        Raises:
            InterlockError: the folder cannot be written.
        """
        try:
            page: TransitionPage = self.read(read_transitions, self.cursor, self.page)
        except InterlockError as refused:
            if self.cursor is None or "cursor" not in str(refused):
                raise
            raise InterlockError(
                f"the log in '{self.folder.path}' was written from another database, or before this one was restored "
                "from a backup, and cannot be gone on with; name another folder"
            ) from None
        self.folder.append(self.leave_out_known(page.transitions))
        self.cursor = page.next
        self.changed.update(page.workstreams)
        self.open.update(page.workstreams)
        self.moved = self.moved or bool(page.transitions or page.workstreams)
        return page.more

    def leave_out_known(self, transitions: list[LoggedTransition]) -> list[LoggedTransition]:
        """Returns transitions without those up to the last one that is in the log: a page may begin in front of it."""
        ids = [transition.metadata.event_id for transition in transitions]
        known, self.known = self.known, ids[-1] if ids else self.known
        return transitions[ids.index(known) + 1 :] if known in ids else transitions

    def write_documents(self, *, at_once: bool = False) -> None:
        """Writes what has changed: at most once a second, and for a tenth of the time.

        Raises:
            InterlockError: the folder cannot be written.
        """
        began = time.monotonic()
        if began < self.next_at and not at_once:
            return
        if self.is_new:
            self.is_new = False
            self.ended.update(self.read(list_workstreams, True))
            self.changed.update(unfinished := self.read(list_workstreams, False))
            self.open.update(unfinished)
        if self.moved:
            self.moved = False
            self.count()
            self.write_overview(self.read(read_overview, sorted(self.open)))
        while self.changed:
            self.write_graph(self.changed.pop())
        self.archive_ended()
        took = time.monotonic() - began
        self.next_at = began + max(EVERY, took * SHARE)

    def count(self) -> None:
        """Counts what has happened since it counted last, and nothing of before.

        Raises:
            InterlockError: the folder cannot be written.
        """
        more = True
        while more:
            page: CountedMoves = self.read(count_moves, self.counted)
            for kind, changes in page.counts.items():
                states = self.counts.setdefault(kind, {})
                for state, change in changes.items():
                    states[state] = states.get(state, 0) + change
            self.counted, more = page.next, page.more

    def write_overview(self, overview: Overview) -> None:
        self.open = {parse_id(stream.id) for stream in overview.workstreams}
        counts = {
            kind: {state: number for state, number in sorted(states.items()) if number}
            for kind, states in self.counts.items()
        }
        shared = {"at": overview.at, "transitions": self.folder.lines, "counts": counts}
        more = {"cursor": self.counted, "tasks": sum(counts["task"].values()), "open_tasks": overview.open_tasks}
        self.folder.replace(CURRENT, {**shared, **more})
        self.folder.replace(
            "metrics.json", {**shared, "workstreams": overview.workstreams, "workers": overview.workers}
        )

    def write_graph(self, unit: int) -> None:
        """Writes the graph of a workstream and its plan."""
        graph: StoredGraph | None = self.read(read_graph, unit)
        if graph is None:
            return  # it was archived meanwhile
        self.folder.replace(f"dag_{graph.id}.json", graph)
        if self.read_plan is not None and graph.tasks:
            self.folder.replace(f"execution_plan_{graph.id}.json", self.read_plan(unit))
        if graph.has_ended:
            self.ended.add(unit)

    def archive_ended(self) -> None:
        """Writes each workstream that has ended to a file of its own, once, when all below it have ended too."""
        for unit in sorted(self.ended) if self.write_archive else ():
            path = self.folder.path / ARCHIVES / f"{format_id('workstream', unit)}.jsonl"
            assert self.write_archive
            if path.exists() or self.write_archive(unit, path):
                self.ended.discard(unit)

    def run(self, *, follow: bool) -> None:
        """Writes everything that has happened, and with `follow` what happens from then on.

        Raises:
            InterlockError: the folder cannot be written, or is of another database.
        """
        while True:
            while self.copy_page():
                self.write_documents()
            self.write_documents(at_once=not follow)
            if not follow:
                return
            time.sleep(POLL_SECONDS)
