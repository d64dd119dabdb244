"""The result of a check of a table, for people and for the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from twofold.infra.errors import QualityFailed
from twofold.quality.rules import Rule


@dataclass(frozen=True, kw_only=True)
class RuleVerdict:
    """The verdict of one rule on one table.

    Attributes:
        rows: that the table has.
        failing: rows that break the rule; for `unique`, every row that shares its values with another; for
            `fresh_within`, every row with a value, if the newest is too old.
        observed: what was seen, as text: least and greatest value, distinct values, the newest; empty if the count of
            failing rows says everything.
    """

    rule: Rule
    rows: int
    failing: int
    observed: str = ""

    @property
    def passed(self) -> bool:
        return self.failing == 0

    def __str__(self) -> str:
        seen = f", observed {self.observed}" if self.observed else ""
        return f"{self.rule}: {self.failing:,} of {self.rows:,} rows{seen}"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A failing row: its key, what the broken rules read, and the rules."""

    values: Mapping[str, str | None]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{column}={value}" for column, value in self.values.items())


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdicts of all rules on one table.

    Attributes:
        table: full name, or empty.
        samples: a few failing rows; empty when every rule holds.
        report: the index page of the Data Docs; None when none were written.
        results: the kept results of this run as JSON; None when none were kept.
    """

    table: str
    rows: int
    rules: tuple[RuleVerdict, ...]
    samples: tuple[Sample, ...] = ()
    report: Path | None = None
    results: Path | None = None

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> tuple[RuleVerdict, ...]:
        return tuple(rule for rule in self.rules if not rule.passed)

    def raise_if_failed(self) -> None:
        """Refuses a table that breaks a rule.

        Raises:
            QualityFailed: lists the broken rules with counts and sample rows; its `facts` are `table`, `rules` and
                `samples`.
        """
        if self.passed:
            return
        lines = [f"{self.table or 'The table'} breaks {len(self.failed)} of {len(self.rules)} rules:"]
        lines += [f"  {rule}" for rule in self.failed]
        lines += [f"  for example {sample} breaks {'; '.join(sample.reasons)}" for sample in self.samples]
        raise QualityFailed(
            "\n".join(lines),
            hint=f"See {self.report}." if self.report else "Correct the rows or the rules.",
            table=self.table,
            rules={str(rule.rule): rule.failing for rule in self.failed},
            samples=[dict(sample.values) for sample in self.samples],
        )

    def as_json(self) -> dict[str, object]:
        """Converts the verdict to plain values."""
        return {
            "table": self.table,
            "passed": self.passed,
            "rows": self.rows,
            "rules": [
                {
                    "rule": str(rule.rule),
                    "kind": rule.rule.kind,
                    "passed": rule.passed,
                    "failing": rule.failing,
                    "observed": rule.observed,
                }
                for rule in self.rules
            ],
            "samples": [{"values": dict(s.values), "reasons": list(s.reasons)} for s in self.samples],
        }
