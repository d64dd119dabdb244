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
    from twofold.dags.dag_docs import PAGES as of_dags

    named = {name for text in PAGES.values() for name in re.findall(r"`<domain>\.(\w+)`", text)}
    assert {"stream", "reconcile", "repair"} <= named
    assert named - set(of_dags) == set()


def test_the_page_of_a_stream_names_the_log_of_its_driver() -> None:
    from twofold.dags.dag_docs import dag_page

    page = dag_page("stream", "own_lab", [], [], Registry(topics={}, tables={}))
    assert "`.twofold/logs/stream-own-lab.log`" in page
