"""What the command line says of itself: plain words, and every command under its name."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import typer
from typer.testing import CliRunner

from interlock.cli.main import add_groups, app
from interlock.core.plugin import Registry
from interlock.plugins import STANDARD
from tests.cli.inside import inside

ROOT_COMMAND = typer.main.get_command(app)


def walk(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        for word, part in command.commands.items():
            yield from walk(part, f"{name} {word}".strip())


def listed(*args: str) -> list[str]:
    """The commands that a help lists."""
    return re.findall(
        r"^│ ([a-z][a-z-]*) ", CliRunner().invoke(app, [*args, "--help"], env={"COLUMNS": "100"}).stdout, re.M
    )


def test_every_command_and_every_option_is_explained() -> None:
    commands = dict(walk(ROOT_COMMAND, ""))
    assert [name for name, command in commands.items() if not command.help] == []
    options = {
        f"{name} {parameter.name}"
        for name, command in commands.items()
        for parameter in command.params
        if not getattr(parameter, "help", "")
    }
    assert options == set()


def test_an_old_name_still_works_and_is_not_listed() -> None:
    commands = listed()
    assert {"dead-letters", "info", "run", "inbox", "schedule"} <= set(commands)
    assert not {"dead", "hello"} & set(commands)
    assert listed("dead") == listed("dead-letters") == ["list", "show", "requeue", "purge"]
    assert CliRunner().invoke(app, ["hello"]).stdout == CliRunner().invoke(app, ["info"]).stdout != ""


def test_an_alias_reads_its_own_environment(tmp_path: Path) -> None:
    ask = inside(f"sqlite:///{tmp_path}/work.db")
    ask("db", "upgrade")
    assert ask("dead", "list", INTERLOCK_DEAD_LIST_LIMIT="none").code == 2
    assert ask("dead-letters", "list", INTERLOCK_DEAD_LETTERS_LIST_LIMIT="none").code == 2


def test_commands_of_plugins_come_from_the_registry() -> None:
    theirs = {
        "schedule", "inbox", "approve", "reject", "decide", "run", "rerun", "signal", "log", "artifacts", "shell", "task",
        "deploy", "pause", "unpause", "pauses", "export", "restore", "workstream", "agent", "capture", "ci",
    }  # fmt: skip
    cli = typer.Typer()
    add_groups(cli, STANDARD)
    assert set(typer.main.get_command(cli).commands) == theirs  # type: ignore[attr-defined]
    without = typer.Typer()
    without.command("list")(lambda: None)
    without.command("show")(lambda: None)
    add_groups(without, Registry(()))
    assert set(typer.main.get_command(without).commands) == {"list", "show"}  # type: ignore[attr-defined]
    assert theirs <= set(ROOT_COMMAND.commands)  # type: ignore[attr-defined]
