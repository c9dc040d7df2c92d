"""Render the page of a lifecycle: drawing, Mermaid diagrams and tables, from the data that runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from interlock.audit.draw import draw_lifecycle
from interlock.kernel.durations import format_us
from interlock.kernel.guards import GUARDS
from interlock.kernel.lifecycle import Lifecycle, Move, State
from interlock.kernel.lifecycle_options import CancelMode, Options, RollUp

INDEX = "README.md"
MARK = "Drawn by `interlock lifecycle docs`"
ROLL_UPS = {
    RollUp.ALL: "Every child must succeed.",
    RollUp.CRITICAL: "A critical child that fails decides; other failures only block what needs them.",
    RollUp.REQUIRED: "Every required child must succeed.",
    RollUp.SINGLE: "One child at a time does its work.",
    RollUp.FOLLOW: "It makes the moves of its current child.",
}
CANCEL_MODES = {
    CancelMode.IMMEDIATE: "At once: asked and done in one transaction.",
    CancelMode.FLAGGED: "Soft: the holder is told and may still finish; hard, or after the deadline: at once.",
    CancelMode.TWO_PHASE: "In two phases: asked, then acknowledged by the holder or forced at the deadline.",
}


def list_targets(lifecycle: Lifecycle, *, extensions: bool) -> dict[str, list[str]]:
    """The states that follow each state, sorted; those of the document alone unless `extensions`."""
    hops = [hop for hop in lifecycle.hops if extensions or not hop.extension]
    return {state: sorted({hop.target for hop in hops if hop.source == state}) for state in lifecycle.states}


def draw_mermaid(lifecycle: Lifecycle, *, whole: bool = False) -> str:
    """A state diagram of the document's edges, or of the `whole` machine with its triggers.

    An end is drawn only where nothing leaves it.
    """
    lines = ["stateDiagram-v2", f"  [*] --> {lifecycle.initial}"]
    for state, targets in list_targets(lifecycle, extensions=whole).items():
        for target in targets:
            triggers = [hop.trigger for hop in lifecycle.hops if (hop.source, hop.target) == (state, target)]
            lines.append(f"  {state} --> {target}" + (f": {', '.join(triggers)}" if whole else ""))
        if not targets and lifecycle.settled(state):
            lines.append(f"  {state} --> [*]")
    return "\n".join(lines)


def render_section(lifecycle: Lifecycle) -> str:
    """The machine as its document defines it: heading, diagram, table of allowed transitions, notes."""
    rows = [
        (format_code(state), ", ".join(map(format_code, targets)) or format_code("(terminal)"))
        for state, targets in list_targets(lifecycle, extensions=False).items()
    ]
    parts = [
        f"## {lifecycle.title}",
        write_code_block("mermaid", draw_mermaid(lifecycle)),
        render_table(("State", "Allowed Transitions"), rows),
    ]
    if lifecycle.notes:
        parts.append("\n".join(["Notes:", *(f"- {note}" for note in lifecycle.notes)]))
    return "\n\n".join(parts)


def render_page(lifecycle: Lifecycle) -> str:
    """Everything about one lifecycle, pleasant to read by itself."""
    origin = f"Document {lifecycle.document}." if lifecycle.document else ""
    parts = [
        f"# {lifecycle.name}",
        f"<!-- {MARK}: edit {lifecycle.name}.toml, not this page. -->",
        " ".join(filter(None, (lifecycle.about, origin))),
        f"![{lifecycle.name}, from birth to its ends]({lifecycle.name}.svg)",
        render_section(lifecycle),
        "## States",
        render_table(
            ("State", "Category", "Meaning", "Cancel", "Deadline"),
            [make_state_row(lifecycle, s) for s in lifecycle.states.values()],
        ),
        "## Moves",
        "A move is the one answer to a trigger in a state. Whoever may fire it asks; the engine alone writes it, "
        "with one event for each hop, in the same transaction.",
        render_table(
            ("From", "Trigger", "To", "Who may fire it", "Event", "Guard, and note"),
            [move_row(move) for move in lifecycle.moves.values() if not move.extension],
        ),
    ]
    if any(move.opens_attempt for move in lifecycle.moves.values()):
        parts.append("↻ closes the attempt and opens the next one.")
    parts += [*render_extensions(lifecycle), *render_guards(lifecycle)]
    parts += ["## The whole machine, by triggers", write_code_block("mermaid", draw_mermaid(lifecycle, whole=True))]
    parts += ["## Rules", render_table(("Rule", "Value"), list(list_option_rows(lifecycle)))]
    return "\n\n".join(parts) + "\n"


def render_extensions(lifecycle: Lifecycle) -> list[str]:
    """What the document lacks, listed apart, each with its reason."""
    added = [move for move in lifecycle.moves.values() if move.extension]
    if not added:
        return []
    rows = [move_row(move) for move in added]
    strict = ", and `interlock validate-log --strict` reports them" if lifecycle.document == "003" else ""
    origin = f"document {lifecycle.document}" if lifecycle.document else "the document"
    return [
        "## Extensions",
        f"These moves are not in {origin}; each says why it is needed. "
        f"`interlock lifecycle export --documents` leaves them out{strict}.",
        render_table(("From", "Trigger", "To", "Who may fire it", "Event", "Guard, note, and why"), rows),
    ]


def render_guards(lifecycle: Lifecycle) -> list[str]:
    """What the engine asks before the moves that name a guard, and where."""
    named = {name for move in lifecycle.moves.values() for name in move.guards}
    if not named:
        return []
    return [
        "## Guards",
        "What a move names in `code` the engine asks before it makes the move, and it makes it only if that is true; "
        "what else is said of a move explains it. A step that is skipped, and a move that an operator forces, pass "
        "without.",
        render_table(
            ("Guard", "What is asked", "Asked in"),
            [(format_code(name), guard.meaning, format_code(guard.asked_by)) for name, guard in GUARDS.items() if name in named],
        ),
    ]


def make_state_row(lifecycle: Lifecycle, state: State) -> tuple[str, ...]:
    """The cells of a state in the table of states."""
    return format_code(state.name), str(state.category), state.about, format_cancel(lifecycle, state), format_deadline(state)


def format_cancel(lifecycle: Lifecycle, state: State) -> str:
    """What a cancel does in a state, in one cell of a table."""
    if state.settled:
        return "–"
    if lifecycle.allows(state.name, "cancel"):
        return "→ " + " → ".join(map(format_code, lifecycle.move(state.name, "cancel").path))
    return f"{state.cancel}: {state.cancel_why}" if state.cancel_why else state.cancel


def format_deadline(state: State) -> str:
    """Until when a state may last, in one cell of a table."""
    if state.settled:
        return "–"
    if state.deadline in ("", "none"):
        return f"none: {state.deadline_why}" if state.deadline_why else "none"
    if state.deadline == "parent":
        return "its parent's"
    limit = f" after {format_us(state.within_us)}" if state.within_us is not None else ""
    return f"{format_code(state.deadline)}{limit}"


def move_row(move: Move) -> tuple[str, ...]:
    """The cells of a move in the table of moves."""
    events = [
        event + (f" ({level})" if level != "info" else "")
        for event, level in zip(move.events, move.severities, strict=True)
    ]
    condition = "; ".join(filter(None, (" and ".join(map(format_code, move.guards)), move.note, move.why)))
    return (
        format_code(move.source) if move.source else "(birth)",
        format_code(move.trigger) + (" ↻" if move.opens_attempt else ""),
        " → ".join(map(format_code, move.path)),
        str(move.owner),
        ", ".join(events),
        condition,
    )


def list_option_rows(lifecycle: Lifecycle) -> Iterable[tuple[str, str]]:
    """The rules beside the table, in words."""
    options = lifecycle.options
    if options.roll_up in ROLL_UPS:
        yield "Children", ROLL_UPS[options.roll_up]
    if any(lifecycle.allows(state, "cancel") for state in lifecycle.states):
        yield "Cancel", CANCEL_MODES[options.cancel_mode] + describe_deadline(options.cancel_within_us)
    if options.monotonic:
        yield "Forward only", "Without the moves that open an attempt (↻), no state is seen twice."
    else:
        yield "Goes round", options.monotonic_why
    yield from list_lease_rows(options)


def describe_deadline(length_us: int | None) -> str:
    """Says within which time a cancel must be carried out; empty if there is no limit."""
    return f" The deadline is {format_us(length_us)}." if length_us is not None else ""


def list_lease_rows(options: Options) -> Iterable[tuple[str, str]]:
    """Lists the rules of leases and budgets, as rows of a table."""
    lease, budget, backoff = options.lease, options.budget, options.backoff
    if lease or budget.losses is not None:
        shared = "failures and lost leases together" if budget.losses is None else "failures"
        lost = "" if budget.losses is None else f", and {budget.losses} lost leases"
        yield "Attempts", f"{budget.attempts} ({shared}){lost}, unless the unit says otherwise."
    if backoff:
        cap = f", at most {format_us(backoff.cap_us)}" if backoff.cap_us is not None else ""
        spread = f", ± {backoff.jitter:.0%}" if backoff.jitter else ", without jitter"
        yield "Retry after", f"{format_us(backoff.base_us)} × {backoff.factor}^attempts{cap}{spread}."
    if lease:
        fixed = lease.ttl_min_us == lease.ttl_max_us
        bounds = "" if fixed else f", from {format_us(lease.ttl_min_us)} to {format_us(lease.ttl_max_us)}"
        silent = f", up to {format_us(lease.silent_max_us)} for a type that cannot beat" if lease.silent_max_us else ""
        yield "Lease", f"{format_us(lease.ttl_us)}{bounds}{silent}."
        missed = f"; {lease.missed_beats} missed beats end the lease" if lease.missed_beats else ""
        yield "Heartbeat", f"every {format_us(lease.beat_us)}{missed}."
        if lease.ack_us is not None:
            yield "Acknowledge", f"within {format_us(lease.ack_us)}."


def render_index(lifecycles: Iterable[Lifecycle]) -> str:
    """The page that leads to all the others."""
    rows = [
        (lifecycle.document, f"[{lifecycle.name}]({lifecycle.name}.md)", lifecycle.about.split(". ")[0].rstrip(".") + ".") for lifecycle in lifecycles
    ]
    return (
        "\n\n".join(
            [
                "# Lifecycles",
                f"<!-- {MARK}: edit the lifecycle files, not this page. -->",
                "A lifecycle is a closed table of states and moves. The engine, the database, the command line, the "
                "checkers and these pages all read the same files: what is not listed is refused.",
                render_table(("Document", "Lifecycle", "What it is"), rows),
                "Every page has the drawing, the machine as its document defines it, then every move with who may fire "
                "it, and apart from these the extensions, each with its reason. A mark such as (A2-1) is a row of "
                "[the resolutions](../documents/resolutions.md). How to write one: "
                "[a lifecycle of your own](../lifecycle-files.md).",
            ]
        )
        + "\n"
    )


def render_drawing(lifecycle: Lifecycle) -> str:
    """The whole machine as an SVG, marked as ours."""
    head, _, rest = draw_lifecycle(lifecycle).partition("\n")
    return f"{head}\n<!-- {MARK} -->\n{rest}"


def render_pages(lifecycles: Sequence[Lifecycle]) -> dict[Path, str]:
    """One page a lifecycle and its drawing, by file name."""
    texts = {Path(f"{lifecycle.name}.md"): render_page(lifecycle) for lifecycle in lifecycles}
    return texts | {Path(f"{lifecycle.name}.svg"): render_drawing(lifecycle) for lifecycle in lifecycles}


def render_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Renders a table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows)])


def write_code_block(language: str, text: str) -> str:
    """Renders a block of code in Markdown."""
    return f"```{language}\n{text}\n```"


def format_code(text: str) -> str:
    """Formats a word as code in Markdown."""
    return f"`{text}`"
