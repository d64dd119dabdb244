"""Validates the params of a DAG run and converts them to arguments of a command.

Airflow validates params only in its form: params of a run through the API reach the task unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument

Params = Mapping[str, object]
INSTANT = r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-][\d:]+)"
"""When the broker got a record."""
PARTITIONS = r"\d+(,\d+)*"
LONGEST_WAIT_MIN = 7 * 24 * 60
REF = "[0-9a-f]{64}"
"""A person, as ledgers name one."""
OFFSETS = r"\d+(:\d+)?(,\d+:\d+)*"


def look_arguments(params: Params, tables: Collection[str]) -> list[str]:
    """Converts a run's params to `TABLE... --pending` or `TABLE... --verify`.

    Raises:
        BadArgument: `verify` is neither true nor false.
    """
    return [*tables, "--verify" if _flag(params, "verify") else "--pending"]


def audit_arguments(params: Params, tables: Collection[str]) -> list[str]:
    """Converts a run's params to `TABLE... [--all]`.

    Raises:
        BadArgument: `everything` is neither true nor false.
    """
    return [*tables, *(["--all"] if _flag(params, "everything") else [])]


def table_argument(params: Params, tables: Collection[str]) -> str:
    """Returns the table in a run's params.

    Raises:
        BadArgument: it is not one of `tables`.
    """
    return _one_of(params, "table", tables)


def backfill_arguments(params: Params, table: str, day: str | None = None) -> list[str]:
    """Converts a run's params to `TABLE --start ... --end ...`, or to `TABLE` for all rows.

    Args:
        day: the partition of the run, like `2013-01-05`; the params then have no range.

    Raises:
        BadArgument: a time without an offset, an empty range, no range, or all rows in a run of a day.
    """
    everything = _flag(params, "everything")
    if day and everything:
        raise BadArgument(
            f"everything=True in a run of the day {day}: expected one of the two.",
            hint="Start a run without a partition for all rows.",
        )
    if everything:
        return [table]
    if day:
        start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        end = start + timedelta(days=1)
    else:
        start, end = _instant(params, "start"), _instant(params, "end")
    if start >= end:
        raise BadArgument(
            f"start={start.isoformat()} is not before end={end.isoformat()}.",
            hint="The end itself is not part of the range.",
        )
    return [table, "--start", start.isoformat(), "--end", end.isoformat()]


def recover_arguments(params: Params, tables: Collection[str]) -> list[str]:
    """Converts a run's params to `TABLE [--at-most N] [--from-archive]`.

    Raises:
        BadArgument: a table that is not one of `tables`, an invalid number or an invalid flag.
    """
    arguments = [_one_of(params, "table", tables)]
    at_most = params.get("at_most", 0)
    if not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 0:
        raise BadArgument(f"at_most={at_most!r}: expected a whole number, 0 or more.")
    arguments += ["--at-most", str(at_most)] if at_most else []
    return [*arguments, *(["--from-archive"] if _flag(params, "from_archive") else [])]


def replay_arguments(params: Params, topics: Collection[str]) -> list[str]:
    """Converts a run's params to `TOPIC [--from ...] [--to ...] [--partitions ...] [--archived]`.

    An empty position leaves that side unbounded.

    Raises:
        BadArgument: a topic that is not one of `topics`, a position that is neither offsets nor a time, partitions that
            are no numbers, or `archived` that is neither true nor false.
    """
    archived = ["--archived"] if _flag(params, "archived") else []
    return [_one_of(params, "topic", topics), *_span(params), *archived]


def redrive_arguments(params: Params, topics: Collection[str]) -> list[str]:
    """Converts a run's params to `TOPIC [--reason=...]` with a range.

    Raises:
        BadArgument: as `replay_arguments`.
    """
    reason = _text(params, "reason")
    return [_one_of(params, "topic", topics), *([f"--reason={reason}"] if reason else []), *_span(params)]


def audit_topic_arguments(params: Params, topics: Collection[str]) -> list[str]:
    """Converts a run's params to `TOPIC...` with a range; all topics if the params name none.

    Raises:
        BadArgument: as `replay_arguments`, or a range without a topic.
    """
    span = _span(params)
    if _text(params, "topic"):
        return [_one_of(params, "topic", topics), *span]
    if span:
        raise BadArgument(
            f"{' '.join(span)} without a topic: expected the topic of the range.",
            hint="Choose a topic, or empty the range.",
        )
    return list(topics)


def forget_arguments(params: Params) -> list[str]:
    """Converts a run's params to `--ref REF`.

    Raises:
        BadArgument: it is none; the message does not repeat it, since it can be an id.
    """
    ref = _text(params, "ref")
    if not re.fullmatch(REF, ref):
        raise BadArgument("ref: expected 64 hexadecimal digits.", hint=f"`{COMMAND} forget KIND ID --ask` prints them.")
    return ["--ref", ref]


def awaited_arguments(params: Params, topics: Collection[str]) -> list[str]:
    """Returns the arguments that check whether the run's range can be read whole; empty if no range is given.

    Raises:
        BadArgument: as `replay_arguments`.
    """
    if not (_span(params) or _flag(params, "archived")):
        return []
    return [*replay_arguments(params, topics), "--dry-run"]


def wait_s(params: Params) -> int:
    """Returns the seconds for which a run waits for its range.

    Raises:
        BadArgument: it is no whole number of minutes from 0 to a week.
    """
    value = params.get("wait_min", 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONGEST_WAIT_MIN:
        raise BadArgument(f"wait_min={value!r}: expected whole minutes, from 0 to {LONGEST_WAIT_MIN:,}.")
    return value * 60


def _span(params: Params) -> list[str]:
    """Converts a run's params to `[--from ...] [--to ...] [--partitions ...]`."""
    arguments = []
    for name, option in {"from_offsets": "--from", "to_offsets": "--to"}.items():
        place = _place(params, name)
        arguments += [option, place] if place else []
    partitions = _text(params, "partitions").replace(" ", "")
    if partitions and not re.fullmatch(PARTITIONS, partitions):
        raise BadArgument(f"partitions={partitions!r}: expected numbers of partitions.", hint="Write 0,2.")
    return [*arguments, *(["--partitions", partitions] if partitions else [])]


def _flag(params: Params, name: str) -> bool:
    value = params.get(name, False)
    if not isinstance(value, bool):
        raise BadArgument(f"{name}={value!r}: expected true or false.")
    return value


def _text(params: Params, name: str) -> str:
    value = params.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadArgument(
            f"{name}={value!r}: expected text.", hint="Start the run from the form, which says what goes where."
        )
    return value.strip()


def _one_of(params: Params, name: str, known: Collection[str]) -> str:
    value = _text(params, name)
    if value not in known:
        raise BadArgument(f"{name}={value!r} is unknown.", hint=f"There are {', '.join(known)}.")
    return value


def _instant(params: Params, name: str) -> datetime:
    text = _text(params, name)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = datetime.min
    if instant.tzinfo is None:
        raise BadArgument(
            f"{name}={text!r}: expected a date and a time with an offset.",
            hint="Write for example 2013-01-05T00:00:00Z.",
        )
    return instant.astimezone(UTC)


def _place(params: Params, name: str) -> str:
    """Returns offsets or an instant from a run's params; empty if there are none."""
    text = _text(params, name)
    if not text or re.fullmatch(OFFSETS, text.replace(" ", "")):
        return text.replace(" ", "")
    if re.match(r"\d{4}-", text):
        return _instant(params, name).isoformat()
    raise BadArgument(
        f"{name}={text!r}: expected offsets or a time.",
        hint="Write one offset for every partition, 1200; partition:offset pairs, 0:1200,2:80; or when the broker got "
        "the records, 2013-01-05T00:00:00Z.",
    )
