"""Waits for servers end with their first answer, with another error, or after a time."""

from __future__ import annotations

import pytest

from twofold.infra.errors import BrokerUnreachable, ProcessFailed, TwofoldError
from twofold.infra.process.readiness import until_answered


class Server:
    """Answers, or raises, what it was given, one after the other."""

    def __init__(self, *answers: TwofoldError | str) -> None:
        self.answers = list(answers)

    def __call__(self) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, TwofoldError):
            raise answer
        return answer


def test_a_server_that_is_starting_is_asked_until_it_answers() -> None:
    server = Server(BrokerUnreachable("not yet"), BrokerUnreachable("not yet"), "ready", "never asked")
    assert until_answered(server, BrokerUnreachable, 60, every_s=0) == "ready"
    assert server.answers == ["never asked"]


def test_another_error_ends_the_wait() -> None:
    server = Server(BrokerUnreachable("not yet"), ProcessFailed("it refuses"), "never asked")
    with pytest.raises(ProcessFailed, match="it refuses"):
        until_answered(server, BrokerUnreachable, 60, every_s=0)


def test_a_wait_ends_with_the_error_of_the_last_try() -> None:
    with pytest.raises(BrokerUnreachable, match="once"):
        until_answered(Server(BrokerUnreachable("once"), "never asked"), BrokerUnreachable, -1)
