"""A writer whose place another one took says so, whichever record shows it."""

from __future__ import annotations

from types import SimpleNamespace

import kafka
import pytest
from kafka.errors import KafkaError, ProducerFencedError

from twofold.infra.errors import WriteConflict
from twofold.infra.kafka.compacted_topic import TransactionalWriter
from twofold.infra.project.settings import Settings


@pytest.mark.parametrize("error", [ProducerFencedError(), KafkaError("an earlier one failed", ProducerFencedError())])
def test_a_writer_behind_another_has_a_conflict(monkeypatch: pytest.MonkeyPatch, error: KafkaError) -> None:
    """A record behind the refused one fails with the reason as an argument."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    def nothing(**_: object) -> None: ...

    producer = SimpleNamespace(init_transactions=nothing, begin_transaction=nothing, send=refuse, close=nothing)
    monkeypatch.setattr(kafka, "KafkaProducer", lambda **_: producer)
    with pytest.raises(WriteConflict, match="Another process writes these records"):
        TransactionalWriter(Settings(), "one").write([("topic", b"key", None)])
