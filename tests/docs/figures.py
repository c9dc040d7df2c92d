"""The figures of the README, rendered from the last bench and the last proof. `python -m tests.docs.figures` writes them."""

import re

from tests.conftest import ROOT
from tests.docs.modules import replace_between

README = ROOT / "README.md"
BEGIN, END = "<!-- figures: written by `python -m tests.docs.figures` -->\n", "<!-- end of figures -->\n"
DRAIN, LATENCY = "drain, 1 process, jobs/s", "idle latency, p50, ms"
STEPS, MILLION = "100 jobs of ten durable steps, jobs/s", "drain with 1,000,000 waiting and 1,000,000 finished, jobs/s"
PEERS = ("Celery (always)", "DBOS", "PgQueuer", "pg-boss")

Medians = dict[tuple[str, str], str]


def read(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def read_medians(text: str) -> Medians:
    """The medians of the table that compares Interlock with its peers, by measure and product."""
    medians: Medians = {}
    measure = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 6 or cells[1] == "who" or cells[0].startswith("-"):
            continue
        measure = cells[0] or measure
        medians[measure, cells[1]] = cells[2]
    return medians


def number(text: str) -> float:
    return float(text.replace(",", ""))


def list_peers(medians: Medians, measure: str) -> str:
    return ", ".join(f"{peer.partition(' (')[0]} {medians[measure, peer]}" for peer in PEERS)


def when(text: str) -> str:
    """The date and the commit of a run, as its page tells them."""
    date = re.search(r"\d{4}-\d\d-\d\d", text)
    commit = re.search(r"[Cc]ommit:? ([0-9a-f]{7})", text)
    assert date, "the run has no date"
    assert commit, "the run has no commit"
    return f"{date[0]}, commit {commit[1]}"


def render_figures() -> str:
    bench, proof, reliability = read("benchmarks.md"), read("proof.md"), read("reliability.md")
    medians = read_medians(bench)
    lives = proof[proof.index("## Random lives") :]  # each part of the proof has a date and a commit of its own
    seeds = re.search(r"^seeds +([\d,]+)", proof, re.MULTILINE)
    broken = re.search(r"^(\d+) seeds broke something", proof, re.MULTILINE)
    assert seeds, "the proof has no seeds"
    assert broken, "the proof does not say how many seeds broke something"
    planted = reliability.partition("\nplanted fault ")[2].partition("```")[0].splitlines()[1:]
    noticed = [line for line in planted if re.search(r" \d+  ", line)]
    ratio = number(medians[MILLION, "Interlock"]) / number(medians[DRAIN, "Interlock"])
    times = number(medians[STEPS, "Interlock"]) / number(medians[STEPS, "DBOS"])
    full_run = bench.partition("## The last full run")[2]
    rows = [
        ("Finished jobs per second, one worker process", medians[DRAIN, "Interlock"], list_peers(medians, DRAIN)),
        ("Milliseconds from submit to start, idle worker, median", medians[LATENCY, "Interlock"], list_peers(medians, LATENCY)),
        ("Jobs of ten durable steps per second", medians[STEPS, "Interlock"], f"DBOS {medians[STEPS, 'DBOS']}: {times:.0f} times as many"),
        ("Finished jobs per second beside 2,000,000 old and waiting ones", medians[MILLION, "Interlock"], f"{ratio:.2f} times the rate on an empty table"),
        ("Simulated histories with random faults", seeds[1], f"{broken[1]} broke a check"),
        ("Faults put into the code on purpose", str(len(planted)), f"{len(noticed)} found by the simulation"),
    ]  # fmt: skip
    table = [f"| {what} | {ours} | {beside} |" for what, ours, beside in rows]
    head = ["| Measured: 2 cores, PostgreSQL, every commit on disk | Interlock | Others |", "| --- | ---: | --- |"]
    dates = f"Speed: {when(full_run)}; Celery on Redis. Simulation: {when(lives)}."
    if "Of the record before acts" in full_run:
        dates += "\nThe speeds were measured before the storage was reshaped; [what that changed](docs/benchmarks.md)."
    return "\n".join([*head, *table, "", dates, ""])


def render_page() -> str:
    return replace_between(README.read_text(encoding="utf-8"), BEGIN, END, render_figures())


if __name__ == "__main__":
    README.write_text(render_page(), encoding="utf-8")
