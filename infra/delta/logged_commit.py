"""One commit of a Delta log, as its file says it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

WRITER = "_writer"
_LOG_FILE = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*parquet)")


def logged_version(file: str) -> int | None:
    """Returns the version to which a file of a log belongs, by its name; None: to none."""
    match = _LOG_FILE.fullmatch(file)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class Added:
    """A data file that a commit added, with the greatest values of its columns if statistics have them."""

    path: str
    rows: int | None
    size: int
    greatest: Mapping[str, Any]


@dataclass(frozen=True)
class LoggedCommit:
    """One commit of the Delta log.

    Attributes:
        rewrites: it removed rows, so that streams skip it; False for a plain append.
        changes: it changed rows at all; False for maintenance.
        info: the JSON of `userMetadata`; empty if there is none.
        writer: the id of the `infra.delta.delta_writer.Writer` that made it; empty if another program did.
        transactions: app -> version of each transaction id that it carries.
        metrics: the engine's counts, under that engine's names.
    """

    version: int
    timestamp_ms: int
    operation: str
    rewrites: bool
    changes: bool
    added: tuple[Added, ...]
    info: Mapping[str, Any] = field(default_factory=dict)
    writer: str = ""
    transactions: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)

    def count(self, *names: str) -> int:
        """Returns the first of these metrics that the commit has; 0 if it has none."""
        return next((int(self.metrics[name]) for name in names if name in self.metrics), 0)

    @property
    def rows_changed(self) -> int:
        """The number of changed rows; files that a MERGE adds hold other rows, too."""
        if self.operation == "MERGE":
            kinds = ("inserted", "updated", "deleted")
            return sum(self.count(f"num_target_rows_{kind}", f"numTargetRows{kind.title()}") for kind in kinds)
        return sum(added.rows or 0 for added in self.added)


def parsed_commit(version: int, actions: list[dict[str, Any]]) -> LoggedCommit:
    info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    adds = [a["add"] for a in actions if "add" in a and a["add"].get("dataChange", True)]
    removes = [a for a in actions if "remove" in a and a["remove"].get("dataChange", True)]
    return LoggedCommit(
        version=version,
        timestamp_ms=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "")),
        rewrites=bool(removes),
        changes=bool(adds or removes),
        added=tuple(_added(add) for add in adds),
        info=info_of(info),
        writer=str(_said(info).get(WRITER, "")),
        transactions={a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a},
        metrics=info.get("operationMetrics") or {},
    )


def info_of(commit_info: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in _said(commit_info).items() if name != WRITER}


def _said(commit_info: Mapping[str, Any]) -> Mapping[str, Any]:
    text = commit_info.get("userMetadata")
    try:
        info = json.loads(text) if text else {}
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}


def _added(add: Mapping[str, Any]) -> Added:
    statistics = json.loads(add["stats"]) if add.get("stats") else {}
    rows, greatest = statistics.get("numRecords"), statistics.get("maxValues") or {}
    return Added(unquote(add["path"]), rows, int(add.get("size", 0)), greatest)
