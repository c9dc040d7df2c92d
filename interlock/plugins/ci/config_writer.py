"""A config as text: what `interlock ci init` writes, and what reads back as the same config."""

import json
import re
from typing import Any

from interlock.plugins.ci.config import CiConfig, CiJob, CiStep, to_plain

PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./ =-]*(?<! )")
HEAD = """\
# What checks this repository. `interlock ci plan --explain` says which jobs a change needs, and why;
# `interlock ci lint` checks this file. Every key: docs/ci/config.md of Interlock.
"""
STARTER = CiConfig(jobs={"check": CiJob(steps=(CiStep(run="echo write here what checks this repository"),))})


def write_config(config: CiConfig) -> str:
    """Returns the text of a config. What has its default is left out."""
    plain = to_plain(config)
    for job in plain["jobs"].values():
        if matrix := job.get("matrix"):
            rows = [{**row["values"], **({"allow_failure": True} if row.get("allow_failure") else {})}
                    for row in matrix.get("include", ())]  # fmt: skip
            exclude = {"exclude": matrix["exclude"]} if "exclude" in matrix else {}
            job["matrix"] = {**matrix["values"], **({"include": rows} if rows else {}), **exclude}
        for key in ("steps", "after"):
            if key in job:
                job[key] = [step["run"] if list(step) == ["run"] else step for step in job[key]]
    return HEAD + "".join(f"{line}\n" for line in write_map({"version": 1, **plain}, ""))


def write_map(value: dict[str, Any], indent: str) -> list[str]:
    """Returns the lines of a map: maps and long lists as blocks, the rest in a line."""
    lines = []
    for key, item in value.items():
        line = f"{indent}{write_text(str(key))}: {write_short(item)}"
        if isinstance(item, dict) and (len(line) > 100 or any(isinstance(part, dict) for part in item.values())):
            lines += [f"{indent}{write_text(str(key))}:", *write_map(item, indent + "  ")]
        elif isinstance(item, list | tuple) and len(line) > 100:
            lines += [f"{indent}{write_text(str(key))}:", *(f"{indent}  - {write_short(part)}" for part in item)]
        else:
            lines.append(line)
    return lines


def write_short(value: Any) -> str:
    """Returns a value in a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write_text(str(key))}: {write_short(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(write_short, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else write_text(value)


def write_text(text: str) -> str:
    """Returns a text, in quotes where YAML or a reader could take it for something else."""
    return text if PLAIN.fullmatch(text) and not re.fullmatch(r"[0-9._]+|null", text) else json.dumps(text)
