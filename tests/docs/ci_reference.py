"""The reference of CI's config, rendered from the structs that read it. `python -m tests.docs.ci_reference` writes it."""

import inspect

import msgspec

from interlock.plugins.ci import config
from interlock.plugins.ci.readers import list_keys
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "ci" / "config.md"
HEAD = """\
# The config of CI

The keys of `.interlock/ci.yaml`. This page is rendered from the structs that read the file, by `python -m tests.docs.ci_reference`.

A text is what is written: `on`, `yes` and `3.10` stay so. Anchors, aliases, tags and a key that is there twice are refused. In `labels`,
`env` and names of artifacts `{name}` stands for a value of the matrix, and `{job}` for the name of the job; commands get them as
variables (`MATRIX_PYTHON`), and their text is never changed. `image`, `services`, `cache` and `group` of a job are known, and refused: this
version cannot serve them. A file has at most 1 MiB and 500 jobs, a matrix 256 combinations.
"""
PARTS = {
    "The file": config.CiConfig, "`on`": config.CiEvents, "`on.push`, `on.pull_request`": config.CiTrigger,
    "`on.schedule`": config.CiSchedule, "`run`": config.CiTerms, "A job": config.CiJob, "A step": config.CiStep,
    "`when`": config.CiWhen, "`artifacts`": config.CiArtifact, "`reports`": config.CiReports,
    "`retries`": config.CiRetries, "`gate`": config.CiGate,
}  # fmt: skip


def render_page() -> str:
    """The page: a table of keys for each struct."""
    parts = [HEAD]
    for title, kind in PARTS.items():
        rows = [
            f"| `{name}` | {describe(key.reader.words)} | {show_default(kind, name)} | {key.about} |"
            for name, key in list_keys(kind).items()
        ]
        parts.append(
            f"\n## {title}\n\n{inspect.getdoc(kind)}\n\n| key | value | default | what it says |\n| --- | --- | --- | --- |\n"
            + "".join(f"{row}\n" for row in rows)
        )
    return "".join(parts)


def describe(words: str) -> str:
    return words.replace("|", "\\|").replace("*", "\\*")


def show_default(kind: type[msgspec.Struct], name: str) -> str:
    """What a key is if nothing is said."""
    field = next(field for field in msgspec.structs.fields(kind) if field.name == name)
    if field.required:
        return "required"
    if isinstance(field.default, bool):
        return str(field.default).lower()
    return f"{field.default}" if isinstance(field.default, str | int) and field.default != "" else "–"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
