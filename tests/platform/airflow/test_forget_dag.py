"""A person is forgotten by a DAG of a real Airflow once that is approved; Airflow keeps no id and no value."""

from __future__ import annotations

import json
import time
from contextlib import closing

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.servers import wait_until
from tests.support.personal_search import found_in
from twofold.features.persons.keys.key_store import KeyStore, Person
from twofold.features.persons.keys.key_store_file import make_keys
from twofold.features.persons.records.record_sealer import sealing
from twofold.infra.airflow.airflow_api import Client
from twofold.infra.airflow.airflow_processes import directory
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.tables.declare.registry import load

pytestmark = pytest.mark.platform

DAG, TOPIC = "shop.forget", "shop.customer_changes"
ID, MAIL = "customer-of-the-airflow-test", "ann.of.the.airflow.test@example.org"
RUN_TIMEOUT_S = 600
ANSWER_AFTER_S = 20.0


def test_a_person_is_forgotten_once_approved_and_airflow_has_no_id(airflow_alone: Settings) -> None:
    """It takes 40 s: two commands and an answer, which Airflow refuses before its scheduler has seen the question."""
    lake, client, topic = Lake(airflow_alone), Client(airflow_alone), load().find_topic(TOPIC)
    wait_until(lambda: DAG in client.dags(), RUN_TIMEOUT_S)
    make_keys(airflow_alone)
    change = {"op": "c", "after": {"customer": ID, "mail": MAIL}, "source": {}}
    with sealing(airflow_alone, [topic]) as seal:
        row = json.loads(seal(TOPIC, json.dumps(change).encode()) or b"")["after"]
    write_deltalake(lake.uri(TOPIC), pa.Table.from_pylist([row]))
    with closing(KeyStore(airflow_alone)) as store:
        ref = store.ref(Person("customer", ID))

        run = client.trigger(DAG, {"ref": ref})
        wait_until(lambda: client.question(DAG, run), RUN_TIMEOUT_S)
        asked = client.question(DAG, run)
        assert asked
        assert asked["subject"] == "Destroy the key of a person (customer)?"
        assert f"| {TOPIC} | events | 1 | 1 |" in asked["body"].splitlines()
        time.sleep(ANSWER_AFTER_S)
        state = store.state(ref)
        assert state
        assert not state.is_forgotten, "it waits for the answer"
        client.answer(DAG, run, "Approve", "asked for by letter")

        assert client.wait(DAG, run, RUN_TIMEOUT_S) == "success"
        certificate = client.result(DAG, run, "forget")
        found = [(one["place"], one["rows"], one["readable"]) for one in certificate["found"]]
        assert (found, certificate["is_complete"]) == ([(TOPIC, 1, 0)], True)
        state = store.state(ref)
        assert state
        assert state.is_forgotten
    kept = found_in([directory(airflow_alone), airflow_alone.logs], [ID, MAIL, ref])
    assert kept.keys() == {ref}, "the search finds the ref, and neither the id nor the mail"
    assert any("airflow.db" in file for file in kept[ref])
