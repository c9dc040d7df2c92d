"""A matrix: one job for each combination of values, and `{name}` in the values of a job.

A value reaches commands only as a variable (`MATRIX_PYTHON`), never as a part of their text.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice, product

import msgspec

from interlock.plugins.ci.readers import FlagReader, ListReader, TextReader, ValueReader
from interlock.plugins.ci.yaml_nodes import Problems, TextPath, YamlList, YamlMap, YamlNode, guess, quote

ROWS_MAX = 256
JOBS_MAX = 500
NAMES_MAX = 8
DIMENSION = TextReader("a name of small letters, digits and _, first a letter", r"[a-z][a-z0-9_]{0,31}")
CELL = TextReader("text of 1 to 100 characters without : and line ends", r"[^:\n]{1,100}")
CELLS = ListReader(CELL, "a list of values")
FLAG = FlagReader()
SUBSTITUTED = re.compile(r"(\{?)\{([a-z][a-z0-9_]*)\}")
RESERVED_NAMES = ("include", "exclude", "allow_failure", "job")


class MatrixRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A combination of values."""

    values: dict[str, str] = {}
    allow_failure: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """The values as variables of commands."""
        return {f"MATRIX_{name.upper()}": value for name, value in self.values.items()}


class Matrix(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values by name, combinations that are added, and those that are left out."""

    values: dict[str, tuple[str, ...]] = {}
    include: tuple[MatrixRow, ...] = ()
    exclude: tuple[dict[str, str], ...] = ()


class MatrixReader(ValueReader):
    """A map from names to lists, with `include` and `exclude`."""

    words = "a map from names to lists of values, with include and exclude"

    def read(self, node: YamlNode, path: TextPath, problems: Problems) -> Matrix | None:
        if not isinstance(node, YamlMap):
            self.refuse(node, problems)
            return None
        before = len(problems.entries)
        values: dict[str, tuple[str, ...]] = {}
        lists: dict[str, YamlNode] = {}
        for key, item in node.pairs:
            problems.places[(*path, key.text)] = item
            if key.text in ("include", "exclude"):
                lists[key.text] = item
            elif key.text in RESERVED_NAMES:
                problems.refuse(key, f"a value cannot be called {quote(key.text)}", f"allowed is {DIMENSION.words}")
            elif DIMENSION.read(key, path, problems) is not None:
                values[key.text] = CELLS.read(item, (*path, key.text), problems) or ()
        if not 1 <= len(values) <= NAMES_MAX and len(problems.entries) == before:
            problems.refuse(node, f"a matrix of {len(values)} names", f"allowed are 1 to {NAMES_MAX}")
        if len(problems.entries) > before:
            return None
        include = read_rows(lists.get("include"), values, problems, whole=True)
        exclude = [row.values for row in read_rows(lists.get("exclude"), values, problems, whole=False)]
        matrix = Matrix(values, tuple(include), tuple(exclude))
        size = count_product(values) + len(include)
        if size > ROWS_MAX:
            problems.refuse(node, f"a matrix of {size:,} combinations", f"allowed are {ROWS_MAX}")
        elif len(problems.entries) == before:
            check_rows(matrix, lists, problems)
        return matrix if len(problems.entries) == before else None


def read_rows(
    node: YamlNode | None, values: Mapping[str, Sequence[str]], problems: Problems, *, whole: bool
) -> list[MatrixRow]:
    """Returns the combinations of a list; `whole` ones name every value, and may say that they are allowed to fail."""
    if node is None:
        return []
    names = ", ".join(values)
    if not isinstance(node, YamlList):
        problems.refuse(node, "this is no list", f"allowed is a list of maps with {names}")
        return []
    rows = []
    for item in node.items:
        if not isinstance(item, YamlMap):
            problems.refuse(item, "this is no map", f"allowed is a map with {names}")
            continue
        cells: dict[str, str] = {}
        allow_failure = False
        for key, value in item.pairs:
            if key.text == "allow_failure" and whole:
                allow_failure = bool(FLAG.read(value, (), problems))
            elif key.text not in values:
                known = [*values, "allow_failure"] if whole else list(values)
                wrong = f"the matrix has no value {quote(key.text)}{guess(key.text, known)}"
                problems.refuse(key, wrong, f"allowed are {', '.join(known)}")
            else:
                cells[key.text] = CELL.read(value, (), problems) or ""
        if whole and len(cells) < len(values) and all(key.text in (*values, "allow_failure") for key, _ in item.pairs):
            missing = next(name for name in values if name not in cells)
            problems.refuse(item, f"this combination has no '{missing}'", f"it needs {names}")
        rows.append(MatrixRow({name: cells[name] for name in values if name in cells}, allow_failure))
    return rows


def check_rows(matrix: Matrix, lists: Mapping[str, YamlNode], problems: Problems) -> None:
    """Adds the problem of a combination that is there twice, of one left out that is not there, and of none at all."""
    plain = [dict(zip(matrix.values, cells, strict=True)) for cells in product(*matrix.values.values())]
    excluded, included = lists.get("exclude"), lists.get("include")
    for place, left_out in enumerate(matrix.exclude):
        if not any(left_out.items() <= row.items() for row in plain):
            assert isinstance(excluded, YamlList)
            problems.refuse(excluded.items[place], "this leaves nothing out", "allowed is a part of a combination")
    rows = list_rows(matrix)
    kept = [row.values for row in rows]
    for place, row in enumerate(matrix.include):
        if kept.count(row.values) > 1:
            assert isinstance(included, YamlList)
            problems.refuse(
                included.items[place], "this combination is there already", "leave it out, or exclude the other"
            )
    if not rows:
        assert excluded is not None
        problems.refuse(excluded, "every combination is left out", "leave at least one")


def count_product(values: Mapping[str, Sequence[str]]) -> int:
    """Returns how many combinations there are, without making them."""
    count = 1
    for cells in values.values():
        count *= len(cells)
    return count


def list_rows(matrix: Matrix | None) -> list[MatrixRow]:
    """Returns the combinations of a matrix in the order of the file; of none, the empty one."""
    if matrix is None:
        return [MatrixRow()]
    rows = []
    for cells in islice(product(*matrix.values.values()), ROWS_MAX):
        values = dict(zip(matrix.values, cells, strict=True))
        if not any(left_out.items() <= values.items() for left_out in matrix.exclude):
            rows.append(MatrixRow(values))
    return rows + list(matrix.include)


def count_rows(matrix: Matrix | None) -> int:
    """Returns how many jobs a job is."""
    return len(list_rows(matrix))


def list_unknown_names(text: str, known: Sequence[str]) -> list[str]:
    """Returns the names in braces of a value that stand for nothing."""
    return [name for escape, name in SUBSTITUTED.findall(text) if not escape and name not in known]


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Returns a value with `{name}` replaced; `{{name}` is the text `{name}`, and other braces stay."""
    return SUBSTITUTED.sub(lambda part: "{" + part[2] + "}" if part[1] else values.get(part[2], part[0]), text)
