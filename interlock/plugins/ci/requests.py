"""What a plan depends on, as it stands in a repository, and the plan that is made of it, from these values alone."""

from collections.abc import Mapping

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.config import CONFIG_FILE, CiConfig, parse_config
from interlock.plugins.ci.discovery import discover
from interlock.plugins.ci.old_config import OLD_FILE, parse_old_config
from interlock.plugins.ci.planner import CiPlan, PlanInput, plan_jobs

MISSPELT = (".interlock/ci.yml", ".interlock.yaml", "ci.ai.yml")
NO_JOBS = f"there is no {CONFIG_FILE}, and nothing was found to build or test; `interlock ci init` writes one"


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan depends on. The fields are those of `PlanInput`, but for the config, which is not read yet."""

    files: dict[str, bytes]  # the config, or without one the files that say what the repository is
    ignored: tuple[str, ...] = ()  # configs that git ignores
    head: str = ""
    base: str = ""
    changed: tuple[str, ...] | None = None
    unknown_because: str = ""
    tree: dict[str, str] = {}
    event: str = "manual"
    branch: str | None = None
    tag: str | None = None
    only: tuple[str, ...] = ()
    platform: str = ""


def make_plan(request: PlanRequest) -> CiPlan:
    """Returns the plan.

    Raises:
        InterlockError: there can be none.
        ConfigError: the config is wrong.
    """
    config, source, file = find_config(request.files, request.tree, request.ignored)
    rest = {name: getattr(request, name) for name in PlanRequest.__struct_fields__ if name not in ("files", "ignored")}
    return plan_jobs(PlanInput(config=config, source=source, config_file=file, **rest))


def find_config(
    files: Mapping[str, bytes], tree: Mapping[str, str], ignored: tuple[str, ...] = ()
) -> tuple[CiConfig, str, str]:
    """Returns the config of a working tree, where it comes from (config or discovered), and its file.

    Raises:
        ConfigError: the file is wrong; what is wrong never falls back to what could be found.
        InterlockError: there is nothing to go by.
    """
    if CONFIG_FILE in tree and OLD_FILE in tree:
        raise InterlockError(f"there are two configs, {CONFIG_FILE} and {OLD_FILE}; keep one of them")
    for file, parse in ((CONFIG_FILE, parse_config), (OLD_FILE, parse_old_config)):
        if file in files:
            return parse(files[file], file), "config", file
        if file in tree:
            raise InterlockError(f"{file} is a link or a submodule; a config is a file")
        if any(path.startswith(f"{file}/") for path in tree):
            raise InterlockError(f"{file} is a folder; a config is a file")
        if file in ignored:
            raise InterlockError(
                f"{file} is there, and git ignores it; take it out of .gitignore (with --tracked: `git add` it)"
            )
    if misspelt := next((file for file in MISSPELT if file in tree), None):
        raise InterlockError(f"there is {misspelt}, which is not read; the config is {CONFIG_FILE}")
    config = discover(tree.keys(), {name: text.decode(errors="replace") for name, text in files.items()})
    if config is None:
        raise InterlockError(NO_JOBS)
    return config, "discovered", CONFIG_FILE
