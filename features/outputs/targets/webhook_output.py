"""The output that calls a receiver for each change of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from twofold.quality.rules import Rule
from twofold.tables.declare.output import Output


@dataclass(frozen=True, kw_only=True)
class WebhookOutput(Output):
    """Requests to a receiver: one for each row that a commit of the table changed."""

    kind: ClassVar[str] = "webhook"
    opens: ClassVar[str] = "twofold.features.outputs.targets.webhook_queue:WebhookQueue"
    steps: ClassVar[Sequence[str]] = (*Output.steps, "twofold.features.outputs.follow.webhook_sending:QueueSender")
    elsewhere: ClassVar[str] = "the receiver is called with null for each row; what it has stored is its own"
    is_read = False

    def __post_init__(self) -> None:
        if not self.destination:
            raise self.mistake("destination", self.destination, "a name of the file of the setting destinations")
        if self.begin not in ("now", "all"):
            raise self.mistake("begin", self.begin, "'now' or 'all'")
        super().__post_init__()

    def name_for(self, table: str) -> str:
        return self.name or self.destination


def to_webhook(
    destination: str,
    *,
    name: str = "",
    columns: Sequence[str] | None = None,
    where: Sequence[Rule] = (),
    when: Literal["changed", "closed"] = "changed",
    reveal: Sequence[str] = (),
    begin: Literal["now", "all"] = "now",
) -> WebhookOutput:
    """Calls a receiver for each change of a row, by a POST that is signed as Standard Webhooks says.

    Each commit of the table sends its net changes. A change is sent until the receiver has it, always under the same
    id, and after the earlier changes of its key.

    Args:
        destination: a name of the file of the setting `destinations`, which has the URL and the secret.
        name: of the output; empty: that of the destination.
        columns: of the rows that are sent; None: all.
        where: rules that one row decides, such as `between("cents", 500_000, None)`: rows that keep all of them are
            sent; one that no longer does is sent as deleted. Null keeps each but `not_null`.
        when: `changed`: each change of a row; `closed`: a row is sent once it has closed, a correction as an update.
        reveal: columns with values of persons, which the requests have decrypted; null once a person is forgotten.
        begin: `now`: changes from then on; `all`: first the rows that the table has.

    Raises:
        BadDeclaration: no destination, or a condition that one row does not decide.
    """
    return WebhookOutput(
        destination=destination, name=name, columns=columns, where=where, when=when, reveal=reveal, begin=begin
    )
