"""Collects several mistakes of one declaration in one error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from twofold.infra.errors import BadDeclaration, Unproved


def found_by(*checks: Callable[[], object]) -> list[BadDeclaration]:
    """Runs the checks and returns their distinct mistakes."""
    mistakes: dict[str, BadDeclaration] = {}
    for check in checks:
        try:
            check()
        except BadDeclaration as fault:
            for mistake in split(fault):
                mistakes.setdefault(mistake.message, mistake)
    return list(mistakes.values())


def require_none(mistakes: Sequence[BadDeclaration]) -> None:
    """Raises the mistakes as one error, if there are any.

    Raises:
        BadDeclaration: the first mistake, with the others in the fact `more`.
    """
    if mistakes:
        first, *others = mistakes
        more = [{"message": other.message, "hint": other.hint} for other in others]
        raise BadDeclaration(first.message, hint=first.hint, **{**first.facts, "more": more})


def split(fault: BadDeclaration) -> list[BadDeclaration]:
    """Splits an error into the mistakes that it holds, in order."""
    more = fault.facts.get("more", [])
    others = [(str(other["message"]), other["hint"]) for other in more] if isinstance(more, list) else []
    facts = {name: value for name, value in fault.facts.items() if name != "more"}
    first = BadDeclaration(fault.message, hint=fault.hint, **facts)
    return [first, *(BadDeclaration(message, hint=hint) for message, hint in others)]


@contextmanager
def together_with(known: Sequence[BadDeclaration]) -> Iterator[None]:
    """Raises these mistakes with the one that leaves the block, or alone; as `Unproved` if each is."""
    mistakes, raised = list(known), list(known)
    try:
        yield
    except BadDeclaration as fault:
        mistakes += split(fault)
        raised.append(fault)
    try:
        require_none(mistakes)
    except BadDeclaration as fault:
        kind = Unproved if all(isinstance(one, Unproved) for one in raised) else BadDeclaration
        raise kind(fault.message, hint=fault.hint, **fault.facts) from None
