"""Commands about the records of a topic: send some, hand them to the processes of a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.commands.run_commands import TopicName
from twofold.cli.console import out
from twofold.infra.errors import BadArgument, BrokerUnreachable
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from twofold.tables.declare.topic import Topic

IN_FLIGHT = 10_000  # kafka-python itself would buffer without bound


def send(
    topic: TopicName,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="One record a line; - is standard input.")] = "-",
    separator: Annotated[str | None, typer.Option("--key-separator", "-K", help="What follows each key.")] = None,
    quarantined: Annotated[
        bool,
        typer.Option("--quarantined", help="Instead of lines: quarantined records that were encrypted as a whole."),
    ] = False,
) -> None:
    """Send records to TOPIC, one a line, and print the offsets at which the broker acknowledged them.

    The key is the field of the JSON record that the topic declares as its message_key. Lines are sent as they are,
    but for what is personal, which is encrypted: ingest quarantines invalid records. Empty lines are skipped. With -K
    an empty value is a tombstone.
    """
    from kafka.errors import KafkaError

    from twofold.infra.kafka.record_producer import producing
    from twofold.infra.kafka.topic_admin import ensure_topics
    from twofold.tables.declare.records.cover import find_cover
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.events.topic_specs import spec

    settings, declared = Settings.from_environment(), load().find_topic(topic)
    if quarantined:
        _send_sealed(settings, declared)
        return
    path = _key_path(declared, separator)
    try:
        lines = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115
    except OSError as error:
        raise BadArgument(f"{file}: {error.strerror}.", hint="Expected a file with one record a line.") from None
    find_cover().require(settings, [declared])
    ensure_topics(settings, [spec(declared)])
    records, placed = 0, dict[int, tuple[int, int]]()  # partition -> first and last offset
    name = declared.full_name
    producer_of = producing(settings, outage_s=60, most_bytes=declared.largest_record)
    with lines, find_cover().sealing(settings, [declared]) as seal, producer_of as producer:
        pairs = keyed(lines, path, separator)
        try:
            while sent := [producer.send(name, seal(name, value), key) for key, value in islice(pairs, IN_FLIGHT)]:
                for place in (future.get() for future in sent):
                    records += 1
                    placed[place.partition] = (placed.get(place.partition, (place.offset,))[0], place.offset)
        except KafkaError as error:
            fault = BrokerUnreachable if error.retriable else BadArgument
            raise fault(f"After {records:,} records the broker did not take one: {error}.") from error
    at = ", ".join(f"{partition} at {first}-{last}" for partition, (first, last) in sorted(placed.items()))
    out.print(f"{records:,} records acknowledged" + (f": partition {at}" if at else "."))


def _send_sealed(settings: Settings, topic: Topic) -> None:
    """Sends quarantined records again that were encrypted as a whole, and prints what became of them."""
    from kafka.errors import KafkaError

    from twofold.infra.delta.lake import Lake
    from twofold.infra.kafka.record_producer import producing
    from twofold.tables.declare.records.cover import find_cover

    with producing(settings, outage_s=60, most_bytes=topic.largest_record) as producer:
        try:
            out.print(str(find_cover()(topic).send_again(Lake(settings), producer)))
        except KafkaError as error:
            raise BrokerUnreachable(f"The broker did not take a record: {error}.", hint="Run it again.") from error


def keyed(lines: Iterable[bytes], path: Sequence[str], separator: str | None) -> Iterator[tuple[bytes | None, ...]]:
    """Yields the key and the value of each non-empty line; a path leads to the key in a JSON value."""
    for line in lines:
        value = line.rstrip(b"\r\n")
        if separator and separator.encode() in value:
            key, _, rest = value.partition(separator.encode())
            yield key, rest or None
        elif value.strip():
            yield None if separator else _field(value, path), value


def _field(value: bytes, path: Sequence[str]) -> bytes | None:
    try:
        content = json.loads(value)
        for name in path:
            content = content[name]
        return None if content is None else (content if isinstance(content, str) else json.dumps(content)).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _key_path(topic: Topic, separator: str | None) -> Sequence[str]:
    """Returns the path of field names to the key in a record; refuses topics without lines, or without such a key."""
    if topic.captures or topic.has_schema_files:
        held = f"changes of the table {topic.captures}" if topic.captures else f"{topic.encoding} records"
        raise BadArgument(f"{topic.full_name} holds {held}, which are no lines of text.")
    given = topic.schema[topic.message_key]
    if getattr(given, "source", "value") != "value" and not separator:
        raise BadArgument(f"The key of {topic.full_name} is no field of its values.", hint="-K : sends KEY:VALUE.")
    return getattr(given, "path", ()) or (topic.message_key,)
