"""Operators that show a rebuilt table to a person for approval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from dags.operators.command_operator import CommandOperator
from dags.operators.params import table_argument
from dags.operators.repair_approval import approved, format_rows

if TYPE_CHECKING:
    from airflow.sdk import Context

    from dags.operators.managed_subprocess import Ended

_COUNTS = {"missing": "missing in the live table", "extra": "too many in it", "changed": "different"}


class CompareOperator(CommandOperator):
    """Rebuilds a table in a shadow lake; its result says how it differs from the live one; skipped when equal."""

    def judge(self, command: str, ended: Ended) -> object:
        document = super().judge(command, ended)
        if not isinstance(document, Mapping):
            raise TypeError(f"./twofold {command} printed no comparison: {document!r}")
        found = document["comparison"]
        if found["is_equal"]:
            raise AirflowSkipException(f"{found['rows']:,} rows are what the log gives again: nothing to promote.")
        self.log.info("differing %s", {name: found[name] for name in _COUNTS})
        return {"digest": found["digest"], "differences": _comparison(found)}


class PromotionApproval(ApprovalOperator):
    """Waits until a person approves or rejects the promotion; without an approval nothing is promoted."""

    def __init__(self, *, source: str, **settings: Any) -> None:
        compared = f"ti.xcom_pull(task_ids='{source}')"
        super().__init__(
            subject="Promote {{ params.table }}, rebuilt from the log?",
            body="The streaming code has computed `{{ params.table }}` from the whole log in a shadow lake. Compared "
            "with the live table:\n\n"
            f"{{{{ {compared}['differences'] }}}}\n\n"
            "- **Approve**: the difference is published in one commit, which `./twofold rollback {{ params.table }}` "
            "reverts. Not promoted when other rows differ by then.\n"
            "- **Reject**: nothing is done; the live table stays as it is.",
            **settings,
        )


def promotion_arguments(context: Context, source: str, tables: Sequence[str]) -> list[str]:
    """`TABLE --promote` of exactly the rows that were shown to the person who approved, and that person."""
    return [table_argument(context["params"], tables), "--promote", *approved(context, source)]


def _comparison(found: Mapping[str, Any]) -> str:
    """A comparison in Markdown: counts, columns that come and go, and the first rows."""
    lines = [f"- {found['rows']:,} rows were compared"]
    lines += [f"- {found[name]:,} are {text}" for name, text in _COUNTS.items() if found[name]]
    for name, text in {"new_columns": "new columns", "gone_columns": "columns that go"}.items():
        lines += [f"- {text}: {', '.join(found[name])}"] if found[name] else []
    if found["examples"]:
        lines += ["", format_rows(found["examples"], sum(found[name] for name in _COUNTS))]
    return "\n".join(lines)
