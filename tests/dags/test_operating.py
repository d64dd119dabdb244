"""docs/operating.md names what there is: every setting, every DAG, every command that it tells to type."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from infra.settings import PREFIX, ROOT, Settings

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def settings_table() -> str:
    """The table of settings, as the page has it."""
    lines = ["| variable | default | what it is |", "|---|---|---|"]
    for field in fields(Settings):
        shown = (
            "`.twofold` in the checkout"
            if field.name == "home"
            else f"`{field.default}`"
            if field.default != ""
            else ""
        )
        lines.append(f"| `{PREFIX}{field.name.upper()}` | {shown} | {field.metadata['doc']} |")
    return "\n".join(lines)


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert settings_table() in PAGE, f"Put this into docs/operating.md:\n{settings_table()}"


def test_every_port_of_the_page_is_a_default() -> None:
    defaults = {str(field.default) for field in fields(Settings) if field.name.endswith("_port")}
    assert set(re.findall(r"\b1[589]\d{3}\b", PAGE)) == defaults


def test_every_dag_is_described() -> None:
    from dags.pages import PAGES

    assert set(re.findall(r"^### `<domain>\.(\w+)`", PAGE, re.MULTILINE)) == set(PAGES)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\./twofold ([a-z-]+)", PAGE))))
def test_every_command_of_the_page_exists(command: str) -> None:
    from typer.main import get_command

    from cli.__main__ import app

    assert command in get_command(app).commands  # type: ignore[attr-defined]
