"""What workflows read: templates, results of steps, and what undoes the work of units."""

from dataclasses import dataclass, field

from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Note
from interlock.kernel.workflow_graph import Template
from interlock.store.query import select
from interlock.store.unit_of_work import UnitOfWork

NEWEST_TEMPLATE = select(Template, "WHERE tenant = :tenant AND name = :name ORDER BY version DESC LIMIT 1")
TEMPLATE = select(Template, "WHERE tenant = :tenant AND name = :name AND version = :version")
COMPENSATIONS = select(Note, "WHERE unit {ids} AND kind = 'compensation' ORDER BY unit, id DESC")


@dataclass
class TemplateState:
    """The templates that a transaction has looked for, by tenant, name and version (None: the newest)."""

    templates: dict[tuple[int, str, int | None], Template | None] = field(default_factory=dict)


def find_template(tx: UnitOfWork, tenant: int, name: str, version: int | None = None) -> Template | None:
    """Returns one version of a template, or the newest, also one that this transaction has just made."""
    templates, key = tx.state(TemplateState).templates, (tenant, name, version)
    if key not in templates:
        if version is None:
            rows = tx.run(NEWEST_TEMPLATE.bind(tenant=tenant, name=name))
        else:
            rows = tx.run(TEMPLATE.bind(tenant=tenant, name=name, version=version))
        templates[key] = rows[0] if rows else None
    return templates[key]


def add_template(tx: UnitOfWork, template: Template) -> None:
    """Adds a new version of a template, which is the newest from now on."""
    tx.add(template)
    for version in (None, template.version):
        tx.state(TemplateState).templates[template.tenant, template.name, version] = template


def read_child_results(tx: UnitOfWork, parents: list[int]) -> list[tuple[int, str, str | None]]:
    """Returns parent, policy and result of each child of these units that has succeeded."""
    if not parents:
        return []
    sql = "SELECT unit.parent, body.policy, body.result FROM unit JOIN body ON body.unit = unit.id"
    where = f"WHERE unit.parent {{ids}} AND unit.outcome = '{Category.SUCCESS}' ORDER BY unit.id"
    return [
        (parent, policy, result) for parent, policy, result in tx.connection.rows(f"{sql} {where}", {"ids": parents})
    ]


def read_compensations(tx: UnitOfWork, units: list[int]) -> list[Note]:
    """Returns what would undo the work of these units, the last first."""
    return tx.run(COMPENSATIONS.bind(ids=units)) if units else []
