"""Reports differences between a table and its recomputation that no late record explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from twofold.batch.ledgers.run_result import Audited, RunResult
from twofold.infra import COMMAND
from twofold.infra.errors import TwofoldError, UnexplainedDifference

_NAMED = 5  # rows that a message names


def require_explained(
    outcomes: Sequence[RunResult], unfolded: Sequence[str], refused: Sequence[TwofoldError] = ()
) -> None:
    """Refuses to succeed if rows differ without an explanation, or if tables were not checked.

    Args:
        unfolded: sentences about tables that differ from their history.
        refused: the errors of tables that were left as they are.

    Raises:
        UnexplainedDifference: names the first rows of each table, by key and by the columns that differ.
        TwofoldError: tables were left as they are, without another fault; of the kind of the first error that is not
            retryable.
    """
    unexplained = [o for o in outcomes if o.unexplained]
    unseen = [f"Left as it is: {error.message}" for error in refused]
    if not unexplained and not unfolded:
        worst = next((error for error in refused if not error.retryable), next(iter(refused), None))
        if len(refused) > 1 and worst is not None:
            raise type(worst)(" ".join(unseen), hint=worst.hint) from worst
        if worst is not None:
            raise worst
        return
    named = [name_rows(o) for o in unexplained]
    names = " ".join(o.table for o in unexplained)
    raise UnexplainedDifference(
        " ".join(["; ".join([*named, *unfolded]) + ".", *unseen]),
        hint=(
            f"They were left as they are. `{COMMAND} why TABLE key=value` shows what wrote such a row; "
            f"`{COMMAND} reconcile {names} --repair` shows what would overwrite them."
            if unexplained
            else f"A writer outside of the platform changed the table: `{COMMAND} show TABLE` lists its versions."
        ),
        tables=[o.table for o in unexplained],
        rows={o.table: o.unexplained for o in unexplained},
        differences={o.table: [asdict(d) for d in o.differences] for o in unexplained},
    )


def name_rows(result: RunResult | Audited) -> str:
    """Writes how many rows of a table nothing explains, and names the first of them."""
    rows = []
    for d in result.differences[:_NAMED]:
        key = " ".join(f"{column}={value}" for column, value in d.key.items())
        if d.change == "update":
            rows.append(
                key + " (" + ", ".join(f"{c} is {v!r}, should be {d.should[c]!r}" for c, v in d.before.items()) + ")"
            )
        else:
            rows.append(key + (" is missing" if d.change == "insert" else " should not be there"))
    unfound = result.unfound if isinstance(result, Audited) else 0
    count = result.unexplained - unfound
    more = count - len(rows)
    examples = ": " + "; ".join([*rows, *([f"and {more} more"] if more > 0 else [])]) if rows else ""
    said = [f"{count} rows differ and nothing touched them{examples}"] * bool(count)
    said += [f"{unfound} groups of rows differ in no row that its key finds, as texts of a collation may"] * bool(
        unfound
    )
    return f"{result.table}: {'; '.join(said)}"
