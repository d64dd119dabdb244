"""Refusals of declarations, and the errors that their authors see."""

from __future__ import annotations

from twofold.infra import DOCS
from twofold.infra.errors import BadDeclaration, Unproved
from twofold_algebra.refusal import PlanMistake, Refusal


def error_of(mistake: PlanMistake, place: str = "", kind: type[BadDeclaration] = BadDeclaration) -> BadDeclaration:
    """Returns the error of a mistake: behind its place, with what to write instead, and the page that says more."""
    more = f" More: {DOCS}/reference/refusals.md#{mistake.refusal}" if mistake.refusal else ""
    return kind(place + mistake.message, hint=mistake.hint + more)


class DeclarationRefusal(Refusal):
    """A shape of declaration that is refused, whatever the plan of its function."""

    def error(self, **details: object) -> BadDeclaration:
        """Returns the error of a declaration."""
        return error_of(self.mistake(**details), kind=Unproved if self.runs else BadDeclaration)
