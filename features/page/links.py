"""Addresses of pages, below the path where the page is mounted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from twofold.infra.airflow.dag_names import APPROVE, BACKFILL
from twofold.status.catalog import Entry

_APPROVAL = ("tasks", APPROVE, "required_actions")


class Address(str):
    """A part of a URL, which is escaped as text but never cut."""

    __slots__ = ()


@dataclass(frozen=True)
class Links:
    """The addresses as a request sees them.

    Args:
        root: path that the page is mounted at, `/twofold`, or nothing.
        airflow: whether the page runs in Airflow, one level below its address.
    """

    root: str
    catalog: Mapping[str, Entry]
    airflow: bool = False

    def to(self, *parts: str, **query: str) -> Address:
        """Returns the address of a page by the parts of its path."""
        path = "/".join(quote(part, safe="") for part in parts)
        return Address(f"{self.root}/{path}" + (f"?{urlencode(query)}" if query else ""))

    def in_airflow(self, *parts: str) -> Address:
        """Returns the address of a page of Airflow by the parts of its path."""
        path = "/".join(quote(part, safe="") for part in parts)
        return Address(f"{self.root.rpartition('/')[0]}/{path}")

    def dag(self, name: str, kind: str) -> Address:
        """Returns the address of the DAG of a topic or table, by its full name, or of its domain."""
        domain, _, table = name.partition(".")
        return self.in_airflow("dags", ".".join([domain, kind, *([table] if kind == BACKFILL else [])]))

    def run(self, asked_in: str, *, approval: bool = False) -> Address:
        """Returns the address of the run that made a plan, or of its approval; `asked_in` as the plan has it."""
        dag, _, run = asked_in.partition(" ")
        return self.in_airflow("dags", dag, "runs", run, *(_APPROVAL if approval else ()))

    def about(self, name: str) -> Address:
        """Returns the address of the page of a topic or table, by its full name."""
        entry = self.catalog.get(name)
        return self.to("topics" if entry and entry.kind == "topic" else "tables", name)
