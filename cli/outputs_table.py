"""Lays outputs out for people, for `status` and `outputs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twofold.cli.console import make_table
from twofold.infra.text.printable import shown_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twofold.status.parts.snapshot import OutputReport


def outputs_table(reports: Sequence[OutputReport]) -> RenderableType:
    """Lays outputs out for people."""
    numbers = ["version", "behind", "for", "waiting", "refused"]
    lines = []
    for o in reports:
        values = (o.version, o.behind, shown_duration(o.behind_s), o.waiting, o.refused)
        lines.append((f"{o.table}: {o.output}", o.kind, o.state, *values))
    return make_table("Outputs", ["output", "kind", "state", *numbers], lines, right=numbers, spare=["kind"])
