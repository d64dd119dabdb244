"""Appends deliveries to their topics, and answers for each once the log has it."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from twofold.features.webhooks.delivery import Delivery
from twofold.features.webhooks.first_received import FirstReceived, Key
from twofold.features.webhooks.webhook_topic import WebhookTopic
from twofold.infra.errors import BrokerUnreachable, TwofoldError
from twofold.infra.kafka.record_producer import producing
from twofold.infra.project.settings import Settings
from twofold.tables.declare.records.cover import Seal, find_cover

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.producer.future import RecordMetadata

ANSWER_S = 10.0
"""How long a delivery waits for the log; after that its sender is asked to send it again."""
OUTAGE_S = 35
"""How long the producer tries to append a record: not less than its own request to the broker may take."""
WAITING_BYTES = 64 << 20
"""Bodies of deliveries that wait for the log, those included whose senders had to be sent away."""
_MOST_AT_ONCE = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Waiting:
    """A delivery that waits for the log.

    Attributes:
        since: the moment from which on it waits, by the clock of `time.monotonic`.
        answer: called once, on any thread, with why it failed or None.
    """

    delivery: Delivery
    since: float
    answer: Callable[[Exception | None], None]


class DeliveryLog:
    """Appends deliveries by one thread: times of first receipt, then records, many at once."""

    def __init__(self, settings: Settings, topics: Sequence[WebhookTopic]) -> None:
        self._settings, self._topics = settings, {topic.full_name: topic for topic in topics}
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._bytes = 0
        self._times: FirstReceived | None = None
        self._producer: KafkaProducer | None = None
        self._seal: Seal | None = None
        self._is_broken = False
        self._open = ExitStack()
        self._connected = self._open.enter_context(ExitStack())
        self._thread = Thread(target=self._run, name="delivery log", daemon=True)

    def start(self) -> None:
        """Begins to append what arrives."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Appends what has arrived, and ends; gives up after a time."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    async def append(self, delivery: Delivery) -> None:
        """Returns once the log has the delivery.

        Raises:
            BrokerUnreachable: it is not known to have it. It may have it later: the sender sends it again, and both
                are one record, sent twice.
            HTTPException: 413, encrypted it is longer than a record of the topic.
        """
        if self._bytes + len(delivery.body) > WAITING_BYTES:
            raise BrokerUnreachable("Too many deliveries wait for the log.")
        loop = asyncio.get_running_loop()
        appended: asyncio.Future[None] = loop.create_future()

        def answer(error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, error)

        def settle(error: Exception | None) -> None:
            self._bytes -= len(delivery.body)
            if not appended.done():
                appended.set_result(None) if error is None else appended.set_exception(error)

        self._bytes += len(delivery.body)
        self._queue.put(_Waiting(delivery, time.monotonic(), answer))
        try:
            await asyncio.wait_for(appended, ANSWER_S)
        except HTTPException:
            raise
        except Exception as error:
            log.warning("a delivery is not in the log: %s: %s", type(error).__name__, error)
            raise BrokerUnreachable("The log did not take the delivery in time.") from error

    def _run(self) -> None:
        try:
            with self._open:
                is_open = True
                while is_open:
                    batch = self._next()
                    is_open = batch[-1] is not None
                    self._append([each for each in batch if each is not None])
        except Exception:
            # Without this thread nothing would be taken any more; the supervisor starts the process again.
            log.exception("the receiver ends: it cannot append")
            os._exit(1)

    def _next(self) -> Sequence[_Waiting | None]:
        """Waits for a delivery, and returns it with those that arrived meanwhile; None, which ends all, is the last."""
        batch = [self._queue.get()]
        with suppress(Empty):
            while batch[-1] is not None and len(batch) < _MOST_AT_ONCE:
                batch.append(self._queue.get_nowait())
        return batch

    def _append(self, batch: Sequence[_Waiting]) -> None:
        from kafka.errors import KafkaError

        if not batch:
            return
        try:
            first, producer = self._first_received(batch), self._ready()
            bodies = [self._sealed(each.delivery) for each in batch]
        except (TwofoldError, KafkaError, sqlite3.Error, OSError) as error:
            for each in batch:
                each.answer(error)
            return
        for each, body in zip(batch, bodies, strict=True):
            delivery = each.delivery
            if time.monotonic() - each.since > ANSWER_S:
                each.answer(TimeoutError("its sender has got an answer"))
                continue
            if len(body) > (most := self._topics[delivery.topic].max_bytes):
                each.answer(HTTPException(413, f"Encrypted, the body has {len(body)} bytes; expected at most {most}."))
                continue
            headers = delivery.record_headers(first.get((delivery.topic, delivery.id)))
            try:
                appended = producer.send(delivery.topic, body, delivery.id.encode(), headers)
            except KafkaError as error:
                self._fail(each, error)
            else:
                appended.add_callback(partial(_succeed, each))
                appended.add_errback(partial(self._fail, each))

    def _first_received(self, batch: Sequence[_Waiting]) -> Mapping[Key, datetime]:
        dated = [each.delivery for each in batch if each.delivery.is_dated_here]
        if not dated:
            return {}
        if self._times is None:
            times = FirstReceived(self._settings.home / "webhooks" / "first-received.sqlite")
            self._times = self._open.enter_context(closing(times))
        return self._times.times([((delivery.topic, delivery.id), delivery.received_at) for delivery in dated])

    def _sealed(self, delivery: Delivery) -> bytes:
        if self._seal is None:
            self._seal = self._open.enter_context(find_cover().sealing(self._settings, self._topics.values()))
        return self._seal(delivery.topic, delivery.body) or b""

    def _ready(self) -> KafkaProducer:
        """Returns the producer: the same until it fails for good."""
        if self._is_broken:
            self._connected.close()
            self._producer, self._is_broken = None, False
        if self._producer is None:
            most = max(topic.largest_record for topic in self._topics.values())
            self._producer = self._connected.enter_context(
                producing(self._settings, outage_s=OUTAGE_S, most_bytes=most)
            )
        return self._producer

    def _fail(self, waiting: _Waiting, error: Exception) -> None:
        """Answers for a delivery that is not known to be in the log; on any thread."""
        self._is_broken = self._is_broken or not getattr(error, "retriable", False)
        waiting.answer(error)


def _succeed(waiting: _Waiting, _: RecordMetadata) -> None:
    waiting.answer(None)
