"""Finds out whether a proxy in front of Airflow forbids the frame in which Airflow shows the page."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from urllib.parse import urlsplit

from twofold.infra.errors import ProcessFailed
from twofold.infra.project.settings import Settings

PAGE = "/twofold/"
OPTIONS, POLICY = "X-Frame-Options", "Content-Security-Policy"
_WAIT_S = 3.0


def require_frame(settings: Settings, _: object) -> None:
    """Refuses a proxy, which `airflow_url` names, that forbids to show the page in a frame.

    Raises:
        ProcessFailed: names the header; or the proxy does not answer.
    """
    if not settings.airflow_url:
        return
    address = settings.airflow_address + PAGE
    try:
        wrong = forbids_frames(settings.airflow_address, _headers(address))
    except (OSError, http.client.HTTPException) as error:
        wrong = f"{settings.airflow_address} does not answer: {error}"
    if wrong:
        hint = f"Let the proxy send no {OPTIONS}, or SAMEORIGIN, and leave {POLICY} as Airflow sends it."
        raise ProcessFailed(wrong, hint=f"{hint} Until then open {address} itself.")


def forbids_frames(address: str, headers: Sequence[tuple[str, str]]) -> str:
    """Returns the header of an answer by which a browser shows no frame of it in a page of the same origin; or nothing.

    A policy with `frame-ancestors` goes before `X-Frame-Options`, as the specification of the policy has it; of several
    policies each must allow it.
    """
    ancestors = list(_ancestors([value for name, value in headers if name.lower() == POLICY.lower()]))
    for sources in ancestors:
        if not any(_allows(source, address) for source in sources):
            return f"{POLICY}: frame-ancestors {' '.join(sources)}".rstrip()
    options = [value for name, value in headers if name.lower() == OPTIONS.lower()]
    known = {option.strip().lower() for option in ",".join(options).split(",")} & {"deny", "sameorigin", "allowall"}
    return f"{OPTIONS}: {', '.join(options)}" if not ancestors and (known == {"deny"} or len(known) > 1) else ""


def _ancestors(policies: Sequence[str]) -> Iterator[list[str]]:
    """Yields the sources of the first `frame-ancestors` of each policy that has one."""
    for policy in ",".join(policies).split(","):
        directives = [directive.split() for directive in policy.lower().split(";")]
        yield from [directive[1:] for directive in directives if directive[:1] == ["frame-ancestors"]][:1]


def _allows(source: str, address: str) -> bool:
    here = urlsplit(address.lower())
    host = source.removeprefix(f"{here.scheme}://").rstrip("/")
    return source in ("'self'", f"{here.scheme}:") or fnmatch(here.netloc, host)


def _headers(url: str) -> list[tuple[str, str]]:
    """Returns the headers of the answer; that it refuses who has not logged in makes no difference."""
    try:
        with urllib.request.urlopen(url, timeout=_WAIT_S) as answer:
            return list(answer.headers.items())
    except urllib.error.HTTPError as error:
        return list(error.headers.items())
