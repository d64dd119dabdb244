"""Operators that report the audit of each table, of the log and of each topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from twofold.dags.operators.report_task import ReportOperator
from twofold.infra import COMMAND
from twofold.infra.errors import TwofoldError, UnexplainedDifference

if TYPE_CHECKING:
    from airflow.sdk import Context

_NAMED = 5  # rows that a message names


class TableAuditOperator(ReportOperator):
    """Fails if an audit found unexplained rows of the table, or could not audit it.

    It is skipped if there was no row to compare. Its history shows when the table was audited.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        report = self.reported(context)
        [found] = [audited for audited in report["tables"] if audited["table"] == self.of]
        if found["skipped"]:
            skipped = TwofoldError(found["skipped"], hint=f"{found['hint']} All other tables were looked at.")
            raise AirflowFailException(str(skipped))
        self.log.info(
            "audited table=%s part=%s of=%s rows=%s unexplained=%s",
            *(found[name] for name in ("table", "turn", "of", "rows", "unexplained")),
        )
        if found["unexplained"]:
            named = [_described(row) for row in found["differences"][:_NAMED]]
            named += [f"{found['unfound']} groups of rows as a whole"] * bool(found["unfound"])
            error = UnexplainedDifference(
                f"{self.of}: {found['unexplained']:,} rows differ and nothing touched them, for example "
                f"{'; '.join(named)}.",
                hint=f"They were left as they are: `{COMMAND} why TABLE key=value` shows what wrote such a row, and "
                "the DAG repair overwrites them once you approve.",
            )
            raise AirflowFailException(str(error))
        if not found["buckets"]:
            raise AirflowSkipException(f"{self.of}: nothing was compared: no row is closed, or none is in this share.")
        return {name: found[name] for name in ("run", "turn", "of", "rows", "buckets", "excused")}


class LogAuditOperator(ReportOperator):
    """Fails if an offset of the log is not exactly once in events and quarantine, or if the broker lost records."""

    def execute(self, context: Context) -> dict[str, int]:
        topics = self.reported(context)["topics"]
        faults = [fault for topic in topics for fault in topic["faults"]]
        if faults:
            error = UnexplainedDifference(
                f"{'; '.join(faults)}.",
                hint=f"`{COMMAND} replay TOPIC` decodes records again; `{COMMAND} show TABLE` lists who wrote.",
            )
            raise AirflowFailException(str(error))
        return {topic["topic"]: sum(part["events"] for part in topic["partitions"]) for topic in topics}


class TopicAuditOperator(ReportOperator):
    """Fails if an audit of the topic found a fault; otherwise logs the number of records in each copy."""

    def execute(self, context: Context) -> dict[str, Any]:
        [log] = [log for log in self.reported(context)["logs"] if log["topic"] == self.of]
        counts = {n: log["sides"][n] for n in ("archive_alone", "both", "broker_alone", "in_transactions", "lost")}
        self.log.info("audited topic=%s records=%s blocks=%s %s", self.of, log["records"], log["blocks"], counts)
        if log["faults"]:
            error = UnexplainedDifference(
                f"{self.of}: {'; '.join(log['faults'])}.",
                hint="Nothing was repaired. The page of this DAG says how to go on.",
            )
            raise AirflowFailException(str(error))
        return {"records": log["records"], "blocks": log["blocks"], "versions": log["versions"], **counts}


def audited_topics(document: object) -> list[str]:
    """Returns the topics in the result of an audit."""
    return [log["topic"] for log in document["logs"]] if isinstance(document, Mapping) else []


def _described(row: dict[str, Any]) -> str:
    return " ".join(f"{column}={value}" for column, value in row["key"].items())
