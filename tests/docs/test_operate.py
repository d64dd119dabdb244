"""docs/how-to/operate.md and its neighbours name ports and DAGs that exist."""

from __future__ import annotations

import re
from dataclasses import fields

from tests import ROOT
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import Registry

PAGES = {path.name: path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")}


def test_every_port_of_the_page_is_a_default() -> None:
    defaults = {str(field.default) for field in fields(Settings) if field.name.endswith("_port")}
    assert set(re.findall(r"\b1[589]\d{3}\b", PAGES["operate.md"])) == defaults


def test_every_dag_that_a_page_names_exists() -> None:
    from twofold.dags.dag_docs import KINDS

    named = {name for text in PAGES.values() for name in re.findall(r"`<domain>\.(\w+)`", text)}
    assert {"stream", "reconcile", "repair"} <= named
    assert named - set(KINDS) == set()


def test_every_kind_of_dag_has_a_page_and_every_page_a_kind() -> None:
    from twofold.dags.dag_docs import KINDS, template

    words = {"tables", "topics", "rules", "command", "domain", "driver"}
    assert {path.stem for path in (ROOT / "dags" / "pages").iterdir()} == {*KINDS}
    assert {word for kind in KINDS for word in template(kind).get_identifiers()} == words


def test_the_page_of_a_stream_names_the_log_of_its_driver() -> None:
    from twofold.dags.dag_docs import dag_page

    page = dag_page("stream", "own_lab", [], [], Registry(topics={}, tables={}))
    assert "`.twofold/logs/stream-own-lab.log`" in page
