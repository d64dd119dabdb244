"""Records per second through a relay, on one core, and into a topic of persons, against a plain one."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING

import msgspec

from benchmarks.measuring.benchmark_platform import platform
from benchmarks.measuring.figures import report, spread
from twofold.features.capture.captured_table import INTAKE
from twofold.features.capture.captured_topic import is_relayed
from twofold.features.persons.records.record_sealer import sealing
from twofold.features.persons.records.sealed_topics import require_sealed
from twofold.features.persons.relay import opened
from twofold.infra.delta.lake import Lake
from twofold.infra.kafka.record_producer import producing
from twofold.infra.kafka.topic_admin import ensure_topics, offsets
from twofold.infra.project.settings import Settings
from twofold.infra.spark.spark_session import session
from twofold.streaming.ingest.ingest_query import Ingest
from twofold.tables.declare.registry import Registry, load
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.topic_specs import specs
from twofold.tables.refresh.open_platform import ensure_domain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERSONS = 10_000
LOGINS = '''\
"""Logins of customers."""
from twofold import Topic, domain_of, personal

TOPIC = Topic(
    schema={{
        "login_id": "long", "customer": "string", "at": "timestamp", "country": "string", "device": "string",
        "mail": {mail}, "phone": {mail}, "mail_domain": {domain},
    }},
    event_time="at", message_key="customer", dedup_keys=["login_id"], max_future_skew=None,
)
'''
FILES = {
    "persons/logins.py": LOGINS.format(mail='personal("customer")', domain='domain_of("mail")'),
    "plain/logins.py": LOGINS.format(mail='"string?"', domain='"string?"'),
    "persons/customers.py": '''\
"""Changes of the customers."""
from twofold import changes_of, domain_of, personal

TOPIC = changes_of(
    "public.customers",
    columns={
        "customer": "string", "country": "string", "mail": personal("customer"), "phone": personal("customer"),
        "mail_domain": domain_of("mail"),
    },
    primary_key=["customer"],
)
''',
}


def login(n: int) -> bytes:
    """A login, some of whose values are a customer's own."""
    person = n % PERSONS
    at = f"2026-03-{1 + n // 86_400 % 28:02}T{n // 3_600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z"
    record = {"login_id": n, "customer": f"c{person}", "at": at, "country": "FR", "device": "a browser"}
    return msgspec.json.encode({**record, **_of(person), "mail_domain": f"example-{person % 50}.org"})


def change(n: int) -> bytes:
    """A change as Debezium writes it."""
    source = {"version": "3.7.0.Final", "connector": "postgresql", "name": "twofold_1_persons_customers", "db": "bank"}
    place = {"sequence": f'["{n}","{n + 1}"]', "ts_us": 1_700_000_000_000_000 + n, "lsn": n + 1, "txId": n}
    row = {"customer": f"c{n % PERSONS}", "country": "FR", **_of(n % PERSONS)}
    return msgspec.json.encode({"before": None, "after": row, "source": source | place, "op": "u", "ts_ms": n})


def _of(person: int) -> dict[str, str]:
    return {"mail": f"customer.{person}@example-{person % 50}.org", "phone": f"+33 1 {person:08}"}


def produce(settings: Settings, topic: str, values: Iterable[bytes | None]) -> None:
    """Fills a topic, with keys of the customers."""
    with producing(settings, outage_s=300) as producer:
        for n, value in enumerate(values):
            producer.send(topic, value, f"c{n % PERSONS}".encode())
        producer.flush()


def relay_rates(settings: Settings, topic: Topic, records: int) -> tuple[float, float]:
    """Records per second, and per second of CPU, from an intake that has them into the topic."""
    produce(settings, topic.full_name + INTAKE, map(change, range(records)))
    with opened(settings, [topic], "benchmark") as relay:
        began, began_cpu, intake = time.monotonic(), time.process_time(), topic.full_name + INTAKE
        while offsets(settings, [intake])[intake][0].earliest < records:
            for _ in range(5):
                relay.step(Event())
        took, cpu = time.monotonic() - began, time.process_time() - began_cpu
    if offsets(settings, [topic.full_name])[topic.full_name][0].latest != records:
        raise RuntimeError(f"{topic.full_name} does not have {records:,} records")
    return records / took, records / cpu


def ingest_s(spark: SparkSession, settings: Settings, topic: Topic, records: int) -> float:
    """Seconds of a drain of one topic, into a lake of its own."""
    own = replace(settings, home=settings.home / "drained")
    alone, lake = Registry({topic.full_name: topic}, {}), Lake(own)
    ensure_domain(spark, lake, alone, topic.domain)
    ingest = Ingest(spark, lake, alone, topic.domain)
    began = time.monotonic()
    ingest.start(available_now=True).awaitTermination()
    took = time.monotonic() - began
    if lake.rows(topic.full_name) != records:
        raise RuntimeError(f"{lake.rows(topic.full_name):,} events of {records:,} records")
    shutil.rmtree(own.home)
    return took


def main() -> int:
    """Relays, then alternates both topics, after one uncounted round of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with platform("persons") as settings, TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text(text)
        registry = load(Path(folder)).require_sound()
        require_sealed(settings, registry.topics.values())
        ensure_topics(settings, specs(registry))
        [captured] = [topic for topic in registry.topics.values() if is_relayed(topic)]
        rate, rate_of_core = relay_rates(settings, captured, args.records)
        print(f"relay: {rate:,.0f}/s, {rate_of_core:,.0f} a second of CPU")
        persons, plain = registry.topics["persons.logins"], registry.topics["plain.logins"]
        with sealing(settings, [persons]) as seal:
            produce(settings, persons.full_name, (seal(persons.full_name, login(n)) for n in range(args.records)))
        produce(settings, plain.full_name, map(login, range(args.records)))
        spark, seconds = session(settings, "persons"), (list[float](), list[float]())
        for run in range(args.rounds + 1):
            for topic, took in zip((persons, plain), seconds, strict=True):
                took += [ingest_s(spark, settings, topic, args.records)]
            ours, theirs = (args.records / took[-1] for took in seconds)
            print(f"round {run}: persons {ours:,.0f}/s, plain {theirs:,.0f}/s")
        spark.stop()
    ratios = [theirs / ours for ours, theirs in zip(seconds[0][1:], seconds[1][1:], strict=True)]
    figures = {
        "records": args.records,
        "relay, records/s": rate,
        "relay, records/s of CPU": rate_of_core,
        "ingest of a topic of persons, records/s": spread([args.records / s for s in seconds[0][1:]]),
        "ratio": spread(ratios),
    }
    claims = {
        "relay >= 5,000 records/s on one core": rate_of_core >= 5_000,
        "ingest of a topic of persons >= 0.7 x that of a plain one (median)": spread(ratios)["median"] >= 0.7,
    }
    return 0 if report("persons", figures, claims) else 1


if __name__ == "__main__":
    sys.exit(main())
