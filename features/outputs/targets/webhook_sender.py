"""Sends the changes of a queue to its receiver: signed, several keys at once, again after growing pauses."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from typing import NamedTuple

import httpx

from twofold.features.outputs.revealed_places import Place
from twofold.features.outputs.targets.revealed_bodies import revealed_bodies
from twofold.features.outputs.targets.webhook_queue import Change, WebhookQueue
from twofold.infra.delta.lake import Lake
from twofold.infra.errors import TwofoldError
from twofold.infra.webhooks.public_address import allowed_networks, checked_address
from twofold.infra.webhooks.signatures import signed_headers
from twofold.tables.declare.output import Output

AT_ONCE = 8
TIMEOUT_S = 10.0
_LONGEST_PAUSE_S = 600.0
_LONGEST_REST_S = 3600.0
_ANSWER_BYTES = 300
_GIVEN_UP_S = 24 * 3600.0
_TEMPORARY = (408, 425, 429)
_BUSY = (429, 503)
"""Answers whose `Retry-After` holds for all changes."""


class Answer(NamedTuple):
    """The answer of a receiver, or why there was none.

    Attributes:
        status: 0: there was no answer.
        text: the status and the start of the body, or the error.
        rest_s: how long the receiver asked to be left alone.
    """

    status: int
    text: str
    rest_s: float = 0.0

    @property
    def is_accepted(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_final(self) -> bool:
        """Whether another try hardly gets another answer."""
        return 300 <= self.status < 500 and self.status not in _TEMPORARY


class WebhookSender:
    """Sends what a queue has; used by one thread.

    The address is read whenever some are sent, and each of its secrets signs every request. Values of persons are
    decrypted as they are sent; the texts of answers, which can repeat them, are then not kept.

    Raises:
        BadSetting: what is allowed is no network.
    """

    def __init__(self, lake: Lake, place: Place, output: Output) -> None:
        self.queue, self._reveal = WebhookQueue(lake, place, output), None
        if output.reveal:
            self._reveal = partial(revealed_bodies, lake.settings, f"webhook {place}", output.reveal)
        self._allowed = allowed_networks(lake.settings.webhook_networks)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs whole URLs, which can be secrets
        # A proxy of the environment would connect to addresses that nothing has checked.
        self._client = httpx.Client(verify=httpx.create_ssl_context(), trust_env=False, timeout=TIMEOUT_S)
        self._accepted_at = self._rests_until = float("-inf")

    def step(self, now: float) -> bool:
        """Sends some changes that are due; False if there are none.

        Args:
            now: seconds since 1970.

        Raises:
            BadSetting: the receiver has no address, or keys of persons that are to be revealed cannot be read.
        """
        changes = [] if now < self._rests_until else self.queue.due(now, AT_ONCE)
        if not changes:
            return False
        url, secrets = self.queue.receiver()
        if self._reveal is not None:
            bodies = self._reveal([change.body for change in changes])
            changes = [change._replace(body=body) for change, body in zip(changes, bodies, strict=True)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(partial(self._answer, httpx.URL(url), secrets, now), changes))
        accepted = [change for change, answer in zip(changes, answers, strict=True) if answer.is_accepted]
        if accepted:
            self.queue.accept(accepted)
            self._accepted_at = now
        refused = []
        for change, answer in zip(changes, answers, strict=True):
            if answer.status in _BUSY:
                self._rests_until = max(self._rests_until, now + answer.rest_s)
            first_at = now if change.first_at is None else change.first_at
            tried = change._replace(tries=change.tries + 1, first_at=first_at, answer=answer.text)
            if not answer.is_accepted and self._is_given_up(tried, first_at, answer, now):
                refused.append(tried)
            elif not answer.is_accepted:
                pause_s = min(2.0**change.tries, _LONGEST_PAUSE_S)
                self.queue.postpone(tried, now + max(pause_s, answer.rest_s))
        if refused:
            self.queue.refuse(refused)
        return True

    def _is_given_up(self, tried: Change, first_at: float, answer: Answer, now: float) -> bool:
        others_are_accepted = self._accepted_at >= first_at
        return (
            (answer.is_final and tried.tries >= 3)
            or (others_are_accepted and tried.tries >= 20)
            or now - first_at >= _GIVEN_UP_S
        )

    def _answer(self, url: httpx.URL, secrets: Sequence[str], now: float, change: Change) -> Answer:
        host, is_secure = url.raw_host.decode(), url.scheme == "https"
        try:
            port = url.port or (443 if is_secure else 80)
            address = checked_address(host, port, self._allowed, is_secure=is_secure)
            headers = {
                "host": url.netloc.decode(),
                "content-type": "application/json",
                "accept-encoding": "identity",
                **signed_headers(secrets, change.id, now, change.body),
            }
            to, named = url.copy_with(host=address), {"sni_hostname": host}
            with self._client.stream("POST", to, content=change.body, headers=headers, extensions=named) as response:
                text = str(response.status_code)
                if self._reveal is None:
                    text = f"{text} {response.reason_phrase}: {_start(response)}".rstrip(": ")
                return Answer(response.status_code, text, _rest_s(response.headers.get("retry-after", ""), now))
        except TwofoldError as error:
            return Answer(0, error.message)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = "" if self._reveal is not None else str(error)
            return Answer(0, f"{host} does not answer: {type(error).__name__} {why}".rstrip())


def _start(response: httpx.Response) -> str:
    """Reads the start of an answer, for a bounded time."""
    start, deadline = b"", time.monotonic() + TIMEOUT_S
    with suppress(httpx.HTTPError):  # the status counts
        for part in response.iter_raw():
            start += part
            if len(start) > _ANSWER_BYTES or time.monotonic() > deadline:
                break
    return " ".join(start[:_ANSWER_BYTES].decode("utf-8", "replace").split())


def _rest_s(retry_after: str, now: float) -> float:
    """Returns the seconds of a header `Retry-After`, which can be a date."""
    seconds = 0.0
    with suppress(ValueError, OverflowError):
        is_number = retry_after.isdecimal()
        seconds = float(retry_after) if is_number else parsedate_to_datetime(retry_after).timestamp() - now
    return min(max(seconds, 0.0), _LONGEST_REST_S)
