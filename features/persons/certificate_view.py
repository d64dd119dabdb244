"""Lays out the certificate that a person is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.cli.console import make_table, out

if TYPE_CHECKING:
    from twofold.features.persons.certificate import Certificate

_READABLE = {True: "Nothing of it can be read any more.", False: "Some of it can still be read."}


def print_certificate(certificate: Certificate) -> None:
    """Prints a certificate for people."""
    title = f"{certificate.kind} {certificate.ref[:12]}: {_state(certificate)}"
    lines = [(held.place, held.part, held.rows, _shown(held.readable)) for held in certificate.found]
    out.print(make_table(title, ["where", "part", "rows", "readable"], lines, right=["rows", "readable"]))
    out.print(_judged(certificate))
    for text in certificate.elsewhere:
        out.print(f"- {text}", markup=False, soft_wrap=True)


def as_markdown(certificate: Certificate) -> str:
    """Writes a certificate for a page of Airflow's, without an id of the person."""
    head = [f"**{certificate.kind} {certificate.ref}**: {_state(certificate)}. {_judged(certificate)}", ""]
    table = ["| where | part | rows | readable |", "|---|---|---:|---:|"]
    lines = [f"| {held.place} | {held.part} | {held.rows:,} | {_shown(held.readable)} |" for held in certificate.found]
    return "\n".join([*head, *table, *lines, "", *(f"- {text}" for text in certificate.elsewhere)])


def _state(certificate: Certificate) -> str:
    at = certificate.forget_at
    if at is None:
        return "not forgotten"
    return f"{'forgotten' if certificate.forgotten_no is not None else 'to be forgotten'} at {at:%Y-%m-%d %H:%M} UTC"


def _judged(certificate: Certificate) -> str:
    return _READABLE[certificate.is_complete]


def _shown(readable: int | None) -> str:
    return "?" if readable is None else f"{readable:,}"
