"""Commands about the records of a topic: send some, hand them to the processes of a command."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twofold.cli.commands.run_commands import TopicName
from twofold.cli.console import out
from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, BrokerUnreachable
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from twofold.tables.declare.topic import Topic

IN_FLIGHT = 10_000  # kafka-python itself would buffer without bound
LONGEST_NAME = 249  # of a topic, by Kafka


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
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.events.record_sealer import sealing
    from twofold.tables.refresh.events.sealed_topics import require_sealed
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
    require_sealed(settings, [declared])
    ensure_topics(settings, [spec(declared)])
    records, placed = 0, dict[int, tuple[int, int]]()  # partition -> first and last offset
    name = declared.full_name
    producer_of = producing(settings, outage_s=60, most_bytes=declared.largest_record)
    with lines, sealing(settings, [declared]) as seal, producer_of as producer:
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

    from twofold.batch.people.sealed_records import send_sealed_again
    from twofold.infra.delta.lake import Lake
    from twofold.infra.kafka.record_producer import producing
    from twofold.infra.keys.key_store import KeyStore

    producer_of = producing(settings, outage_s=60, most_bytes=topic.largest_record)
    with closing(KeyStore(settings)) as store, producer_of as producer:
        try:
            sent = send_sealed_again(Lake(settings), topic, store, producer)
        except KafkaError as error:
            raise BrokerUnreachable(f"The broker did not take a record: {error}.", hint="Run it again.") from error
    out.print(
        f"{sent.sent:,} records sent again; {sent.there:,} are events already, {sent.refused:,} would be refused "
        f"again, the keys of {sent.ended:,} are destroyed."
    )


def work(
    topic: TopicName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What is run with each record, after --.")
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="A queue of another name gets every record, too.")] = "",
    workers: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="How many records are worked on at once.")
    ] = 1,
    deliveries: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="How often COMMAND gets a record at most.")
    ] = 5,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="COMMAND is killed after this time.")] = "5 minutes",
    status: Annotated[bool, typer.Option("--status", help="Only print how many records are not done.")] = False,
) -> None:
    """Hand the records of TOPIC to N workers: each record to one run of COMMAND, until it is stopped.

    The value is on standard input; RECORD_KEY, RECORD_TOPIC, RECORD_PARTITION, RECORD_OFFSET and RECORD_DELIVERY are in
    the environment. With exit code 0 the record is done, else it is delivered again after a pause, and goes to the
    topic TOPIC.NAME.dead when its deliveries are used up. Each record is done at least once, in no order.
    """
    from twofold.infra.duration import parse_duration
    from twofold.infra.kafka.topic_admin import ensure_topics
    from twofold.outputs.work.work_queue import WorkQueue, count, run_below_reaper
    from twofold.tables.declare.outputs.output import is_name

    if not is_name(name):
        raise BadArgument(
            f"--name={name!r} cannot name a queue.",
            hint="Use lower-case letters, digits and _, beginning with a letter.",
        )
    timeout_s = parse_duration(timeout, "--timeout") / 1000
    if not timeout_s:
        raise BadArgument(f"--timeout={timeout!r}: expected some time for COMMAND.")
    program = [] if status else _program(command or [])
    settings = Settings.from_environment()
    full_name = _topic_on_broker(settings, topic)
    queue = WorkQueue(
        topic=full_name, name=name, command=program, workers=workers, deliveries=deliveries, timeout_s=timeout_s
    )
    dead = queue.dead_letters.name
    if status:
        counts = count(settings, queue)
        out.print(
            f"{counts.waiting:,} records wait, {counts.begun:,} are begun, {counts.dead:,} dead letters in {dead}."
        )
        return
    if len(dead) > LONGEST_NAME:
        raise BadArgument(f"{dead} has more than {LONGEST_NAME} characters.", hint="Choose a shorter --name.")
    ensure_topics(settings, [queue.dead_letters])
    out.print(f"{workers} workers of the group {queue.group}; dead letters go to {dead}. Ctrl-C stops them.")
    if code := run_below_reaper(queue):
        raise typer.Exit(code)


def _program(command: Sequence[str]) -> list[str]:
    """Returns a command with the path of its program; refuses none, and one that is not found."""
    if not command:
        raise BadArgument("No command.", hint=f"{COMMAND} work TOPIC --name NAME -- COMMAND [ARGUMENT]...")
    program = shutil.which(command[0])
    if program is None:
        raise BadArgument(f"{command[0]!r} is no program that can be run.", hint="Is it executable, and on the PATH?")
    return [str(Path(program).absolute()), *command[1:]]


def _topic_on_broker(settings: Settings, name: str) -> str:
    """Returns the full name of a topic that is declared, or that the broker has, such as one of dead letters."""
    from twofold.infra.kafka.topic_admin import ensure_topics, offsets
    from twofold.tables.declare.registry import load
    from twofold.tables.refresh.events.topic_specs import spec

    try:
        declared = load().find_topic(name)
    except BadArgument:
        if not offsets(settings, [name]):
            raise
        return name
    ensure_topics(settings, [spec(declared)])
    return declared.full_name


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
