"""What is wrong with quarantined records: by rule, with an example; new ones are added to those that were counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.plant import plant
from tests.status.test_fold import append
from tests.tables.declared import TOPIC_FILE, edited
from twofold.infra.delta.delta_writer import CommitTag, Writer
from twofold.infra.delta.lake import QUARANTINE, Lake
from twofold.status import fold
from twofold.status.fold import Facts
from twofold.status.parts.refused_records import UNREADABLE, Refused
from twofold.tables.declare.metadata_columns import OFFSET, PARTITION
from twofold.tables.declare.topic import Topic
from twofold.tables.refresh.events.record_decoder import QUARANTINE_SCHEMA

NAME = "plant.readings" + QUARANTINE
RULE, OTHER = "between(value, 0, 10)", "not_null(sensor)"
GARBLED, TYPE = "malformed JSON at 7", "Expected `float`, got `str` at `value`"


@pytest.fixture
def topic(lake: Lake, tmp_path: Path) -> Topic:
    text = edited(TOPIC_FILE, "from twofold import ", "from twofold import between, not_null, ")
    text = edited(text, "dedup_keys=", 'checks=[between("value", 0, 10), not_null("sensor")],\n    dedup_keys=')
    lake.ensure(NAME, QUARANTINE_SCHEMA, statistics=[PARTITION, OFFSET])
    return plant(tmp_path / "declared", readings=text).topics["plant.readings"]


def refuse(lake: Lake, number: int, *reasons: Sequence[str]) -> None:
    """Quarantines a record for each list of reasons, at offsets from ten times the number on."""
    offsets = [10 * number + n for n in range(len(reasons))]
    append(
        lake, NAME, number, QUARANTINE_SCHEMA, reasons=reasons, **{PARTITION: [1] * len(reasons), OFFSET: offsets}
    )  # fmt: skip


def refused(reason: str, records: int, offset: int, text: str = "") -> Refused:
    return Refused(reason=reason, records=records, partition=1, offset=offset, text=text or reason)


def test_a_record_counts_for_each_rule_and_once_for_the_decoder(lake: Lake, topic: Topic) -> None:
    refuse(lake, 1, [RULE], [RULE, OTHER], [GARBLED], [TYPE, GARBLED, RULE])
    assert Facts(lake).refused(topic) == [
        refused(RULE, 3, 13),
        refused(UNREADABLE, 2, 13, TYPE),
        refused(OTHER, 1, 11),
    ]


def test_a_topic_without_bad_records_or_a_quarantine_has_none(lake: Lake, topic: Topic, tmp_path: Path) -> None:
    assert Facts(lake).refused(topic) == []
    assert Facts(Lake(lake.settings)).refused(plant(tmp_path / "other").topics["plant.readings"]) == []


def test_new_ones_are_added_and_only_they_are_read(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(lake, 1, [RULE], [GARBLED])
    facts = Facts(lake)
    facts.refused(topic)
    refuse(lake, 2, [RULE])
    refuse(lake, 3, [OTHER])
    whole = Facts(lake).refused(topic)
    assert whole == [refused(RULE, 2, 20), refused(UNREADABLE, 1, 11, GARBLED), refused(OTHER, 1, 30)]
    monkeypatch.setattr(fold, "select", None)
    later = Facts(lake, facts.table_versions)
    assert sorted(later.refused(topic), key=str) == sorted(whole, key=str)
    monkeypatch.setattr(fold, "changed_rows", None)
    assert Facts(lake, later.table_versions).refused(topic) == later.refused(topic), "it has not moved"


def test_those_that_have_left_are_not_counted(lake: Lake, topic: Topic) -> None:
    refuse(lake, 1, [RULE], [RULE], [OTHER])
    facts = Facts(lake)
    facts.refused(topic)
    lake.open(NAME).delete(f"{OFFSET} = 11")
    refuse(lake, 2, [OTHER])
    assert Facts(lake, facts.table_versions).refused(topic) == [refused(OTHER, 2, 20), refused(RULE, 1, 10)]


def test_another_list_of_rules_counts_all_again(lake: Lake, topic: Topic, tmp_path: Path) -> None:
    refuse(lake, 1, [RULE])
    facts = Facts(lake)
    facts.refused(topic)
    plain = plant(tmp_path / "plain").topics["plant.readings"]
    assert Facts(lake, facts.table_versions).refused(plain) == [refused(UNREADABLE, 1, 10, RULE)]
    assert Writer(lake, NAME).done(CommitTag(app="test", version=1))
