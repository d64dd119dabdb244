"""Kafka topics: creation as declared, offsets by partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from twofold.infra import COMMAND
from twofold.infra.errors import BadArgument, BrokerUnreachable
from twofold.infra.process.readiness import until_answered
from twofold.infra.project.settings import Settings

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

TIMEOUT_S = 3.0
FENCED_S = 30.0
"""So long a broker may be out before a topic is created."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """The desired state of a topic; configs that are not named keep the broker's defaults."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


@dataclass(frozen=True, kw_only=True)
class PartitionOffsets:
    """Half-open bounds of a partition.

    Args:
        earliest: the first offset that can be read, from the archive or the broker.
        earliest_local: the first offset that the broker itself still has.
        latest: the offset that the next record gets.
        tiered: the offset after the last one that the archive has; None when nothing is archived.
    """

    earliest: int
    earliest_local: int
    latest: int
    tiered: int | None


class KeptAdmin:
    """Requests to the broker over one connection, for what is not worth a failure."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open = ExitStack()
        self._client: KafkaAdminClient | None = None

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Maps the existing topics to their ids; empty while the broker does not answer."""
        return self._ask(lambda client: _ids(client, names)) or {}

    def commit(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        """Sets the offsets of a consumer group without members, for tools that show its lag; whether it has them now.

        Args:
            offsets: topic -> partition -> the next offset.
        """
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        committed = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }
        answers = self._ask(lambda client: client.alter_group_offsets(group, committed))
        return answers is not None and not any(getattr(error, "errno", 0) for error in answers.values())

    def _ask(self, request: Callable[[KafkaAdminClient], T]) -> T | None:
        """Returns the answer; None if there is none, after which the next request connects again."""
        from kafka.errors import KafkaError

        try:
            if self._client is None:
                self._client = self._open.enter_context(reach(self._settings))
            return request(self._client)
        except (BrokerUnreachable, KafkaError, OSError):
            self._client = None
            self._open.close()
            return None


@contextmanager
def reach(settings: Settings, *, timeout_s: float = TIMEOUT_S) -> Iterator[KafkaAdminClient]:
    """Opens an admin client of the broker, and closes it at the end.

    Raises:
        BrokerUnreachable: no answer within `timeout_s`, at the start or later, or no broker leads what is asked for.
            Retryable.
    """
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError, UnknownBrokerIdError

    try:
        client = KafkaAdminClient(
            bootstrap_servers=settings.bootstrap_servers.split(","),
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(timeout_s * 1000),
            reconnect_backoff_max_ms=500,
        )
        try:
            yield client
        finally:
            client.close()
    except (KafkaConnectionError, KafkaTimeoutError, RequestTimedOutError, UnknownBrokerIdError, OSError) as error:
        raise _unreachable(settings) from error


def ensure_topics(settings: Settings, topics: Sequence[TopicSpec]) -> list[str]:
    """Creates missing topics, adds partitions, and sets configs that differ.

    Returns:
        The changes, one line each; empty if all was as declared.

    Raises:
        BadArgument: a topic has more partitions than declared, which Kafka cannot take away, or a compacted one fewer.
        BrokerUnreachable: retryable.
    """
    with reach(settings) as client:
        existing = _partition_counts(client, [topic.name for topic in topics])
        for topic in topics:
            if existing.get(topic.name, 0) > topic.partitions:
                raise BadArgument(
                    f"Topic {topic.name} has {existing[topic.name]} partitions; {topic.partitions} are declared.",
                    hint="Partitions cannot be removed: declare what is there, or a topic of another name.",
                )
            if existing.get(topic.name, topic.partitions) < topic.partitions and topic.is_compacted:
                raise BadArgument(
                    f"Topic {topic.name} is compacted and has {existing[topic.name]} partitions; {topic.partitions} "
                    "are declared, which would move keys to other partitions, beyond the order of offsets.",
                    hint="Declare what is there, or a topic of another name.",
                )
        missing = [topic for topic in topics if topic.name not in existing]
        changes = _create(client, missing)
        present = [topic for topic in topics if topic.name in existing]
        return changes + _grow(client, present, existing) + _configure(client, present)


@contextmanager
def closing_segments(settings: Settings, topic: str) -> Iterator[None]:
    """Has the broker close each segment of a topic that is older than a second when its partition gets a record.

    A closed segment goes to the archive. The topic closes segments as before once the context ends.

    Raises:
        BrokerUnreachable: retryable.
    """
    from kafka.admin import AlterConfigOp

    _alter(settings, topic, {"segment.ms": "1000"})
    try:
        yield
    finally:
        _alter(settings, topic, {"segment.ms": (AlterConfigOp.DELETE, "")})


def _alter(settings: Settings, topic: str, configs: Mapping[str, object]) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType

    with reach(settings) as client:
        client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])


def offsets(settings: Settings, names: Sequence[str]) -> dict[str, dict[int, PartitionOffsets]]:
    """Returns the offsets of every partition of these topics; a topic that does not exist is left out.

    Raises:
        BrokerUnreachable: retryable.
    """
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    with reach(settings) as client:
        partitions = [
            TopicPartition(name, number)
            for name, count in _partition_counts(client, names).items()
            for number in range(count)
        ]
        if not partitions:
            return {}
        earliest, local, latest, tiered = (
            client.list_partition_offsets(dict.fromkeys(partitions, spec))
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST, OffsetSpec.LATEST_TIERED)
        )
    by_topic: dict[str, dict[int, PartitionOffsets]] = {}
    for partition in partitions:
        last_tiered = tiered[partition].offset
        by_topic.setdefault(partition.topic, {})[partition.partition] = PartitionOffsets(
            earliest=earliest[partition].offset,
            earliest_local=local[partition].offset,
            latest=latest[partition].offset,
            tiered=last_tiered + 1 if last_tiered >= 0 else None,
        )
    return by_topic


def appended_ms(settings: Settings, places: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    """Returns the times at which records were appended, in epoch milliseconds.

    Args:
        places: topic -> partition -> offset of the record, or of one before it.

    Returns:
        Topic -> partition -> time; what the broker does not give within `TIMEOUT_S` is left out.

    Raises:
        BrokerUnreachable: retryable.
    """
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaConnectionError, KafkaTimeoutError

    places_of = {TopicPartition(topic, p): offset for topic, offsets in places.items() for p, offset in offsets.items()}
    instants: dict[str, dict[int, int]] = {}
    if not places_of:
        return instants
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=settings.bootstrap_servers.split(","),
            bootstrap_timeout_ms=int(TIMEOUT_S * 1000),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=1,  # one batch all the same
        )
        try:
            consumer.assign(list(places_of))
            for partition, offset in places_of.items():
                consumer.seek(partition, offset)
            deadline = time.monotonic() + TIMEOUT_S
            while places_of and time.monotonic() < deadline:
                for partition, records in consumer.poll(timeout_ms=200).items():
                    if records and places_of.pop(partition, None) is not None:
                        instants.setdefault(partition.topic, {})[partition.partition] = records[0].timestamp
                        consumer.pause(partition)
        finally:
            consumer.close()
    except (KafkaConnectionError, KafkaTimeoutError, OSError) as error:
        raise _unreachable(settings) from error
    return instants


def topic_ids(settings: Settings, names: Sequence[str]) -> dict[str, str]:
    """Maps each topic that exists to its id; an earlier topic of the same name had another id.

    Raises:
        BrokerUnreachable: retryable.
    """
    with reach(settings) as client:
        return _ids(client, names)


def _ids(client: KafkaAdminClient, names: Sequence[str]) -> dict[str, str]:
    described = client.describe_topics(list(names))
    return {topic["name"]: str(topic["topic_id"]) for topic in described if topic["error_code"] == 0}


def _partition_counts(client: KafkaAdminClient, names: Sequence[str]) -> dict[str, int]:
    """Maps each topic that exists to its number of partitions."""
    if not names:
        return {}
    described = client.describe_topics(list(names))
    return {topic["name"]: len(topic["partitions"]) for topic in described if topic["error_code"] == 0}


def _create(client: KafkaAdminClient, topics: Sequence[TopicSpec]) -> list[str]:
    from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

    def create(topic: TopicSpec) -> None:
        request = {"num_partitions": topic.partitions, "replication_factor": -1, "configs": dict(topic.configs)}
        try:
            client.create_topics({topic.name: request}, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            # Two processes that start together; both declare the same.
            client.wait_for_topics([topic.name])
        except InvalidReplicationFactorError as error:
            # With the broker's own factor: a busy machine was late with a heartbeat, so the broker is out for a moment.
            raise BrokerUnreachable(f"The broker takes no partition of {topic.name}: {error}.") from error

    for topic in topics:
        until_answered(partial(create, topic), BrokerUnreachable, FENCED_S)
    return [f"{topic.name}: created with {topic.partitions} partitions" for topic in topics]


def _grow(client: KafkaAdminClient, topics: Sequence[TopicSpec], existing: Mapping[str, int]) -> list[str]:
    growing = {topic.name: topic.partitions for topic in topics if existing[topic.name] < topic.partitions}
    if growing:
        client.create_partitions(growing)
    return [f"{name}: {existing[name]} -> {count} partitions" for name, count in growing.items()]


def _configure(client: KafkaAdminClient, topics: Sequence[TopicSpec]) -> list[str]:
    from kafka.admin import ConfigResource, ConfigResourceType

    if not topics:
        return []
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics]
    described = client.describe_configs(resources, config_filter="all")["topic"]
    changes = []
    for topic in topics:
        actual = {name: config["value"] for name, config in described[topic.name].items()}
        differing = {name: value for name, value in topic.configs.items() if actual.get(name) != value}
        if differing:
            client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic.name, differing)])
        changes += [f"{topic.name}: {name} {actual.get(name)} -> {value}" for name, value in differing.items()]
    return changes


def _unreachable(settings: Settings) -> BrokerUnreachable:
    setting = "TWOFOLD_KAFKA_PORT" if settings.supervises_broker else "TWOFOLD_BOOTSTRAP"
    return BrokerUnreachable(
        f"No Kafka broker answers at {settings.bootstrap_servers} ({setting}).",
        hint=f"Start the platform with {COMMAND} up; {COMMAND} status and the log broker.log say how it does."
        if settings.supervises_broker
        else "Check the address, and that this machine may reach it.",
        address=settings.bootstrap_servers,
        setting=setting,
    )
