"""Sensor that waits until a range of a topic is ingested as a whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException

from twofold.dags.operators.command_operator import TRY_AGAIN, CommandOperator, message
from twofold.dags.operators.params import LONGEST_WAIT_MIN, wait_s
from twofold.infra.errors import TwofoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk import Context

    from twofold.dags.operators.managed_subprocess import Ended

LOOK_EVERY_S = 30


class RangeSensor(CommandOperator, BaseSensorOperator):
    """Succeeds once the range of a run can be read whole; between two checks it is rescheduled.

    It then holds neither a slot nor a process, and no check starts Spark. If the range cannot be read yet, each check
    logs the reachable offset. When the run's `wait_min` is over, it fails with that message.

    Args:
        arguments: the arguments that check the range; empty: there is nothing to wait for.
    """

    def __init__(self, *, arguments: Callable[[Context], Sequence[str]], **settings: Any) -> None:
        super().__init__(
            command="replay",
            arguments=arguments,
            mode="reschedule",
            poke_interval=LOOK_EVERY_S,
            timeout=timedelta(minutes=LONGEST_WAIT_MIN + 5),
            **settings,
        )
        self.asks = arguments
        self.why = ""

    def execute(self, context: Context) -> object:
        return BaseSensorOperator.execute(self, context)

    def poke(self, context: Context) -> bool:
        try:
            patience = timedelta(seconds=wait_s(context["params"]))
            if not self.asks(context):
                return True
        except TwofoldError as error:
            raise AirflowFailException(str(error)) from None
        if self.run_in(context) is not None:
            return True
        now = datetime.now(UTC)
        since = context["ti"].get_first_reschedule_date(context) or now
        if now - since >= patience:
            raise AirflowFailException(f"After {patience} the range cannot be read whole. {self.why}")
        self.log.info("range_awaited since=%s for=%s why=%s", since, patience, self.why)
        return False

    def judge(self, command: str, ended: Ended) -> object:
        """Returns the ranges; None if a later check may find more of them."""
        if ended.code == TRY_AGAIN:
            self.why = message(ended)
            return None
        return super().judge(command, ended)
