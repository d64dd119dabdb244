"""Serves the page alone, without Airflow: on this machine only, for Airflow's users."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPBasic, HTTPBasicCredentials

from twofold.features.page.server.app import application
from twofold.infra.airflow.airflow_processes import passwords
from twofold.infra.process.ports import HOST
from twofold.infra.process.server_ports import require_free_ports
from twofold.infra.process.service import ServerPort
from twofold.infra.project.settings import Settings

_BASIC = HTTPBasic(realm="Twofold", auto_error=False)
_NAMES = (HOST, "localhost")
PORT = ServerPort("page_port", "the page", "page")


def serve(settings: Settings) -> None:
    """Serves the page until it is stopped.

    Raises:
        PortTaken: names the setting.
    """
    import uvicorn

    require_free_ports(settings, [PORT])
    uvicorn.run(
        application(settings, signed_in(settings)),
        host=HOST,
        port=settings.page_port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


def address(settings: Settings) -> str:
    """Returns the address that `serve` listens on."""
    return f"http://{HOST}:{settings.page_port}/"


def signed_in(settings: Settings) -> Callable[..., None]:
    """Returns the dependency that lets in those who know the password of a user of Airflow, by a name of this machine.

    The name is checked since a page elsewhere could have its own name lead here, and read with the browser's password.
    """
    names = {f"{name}:{settings.page_port}" for name in _NAMES}
    users = [(name.encode(), word.encode()) for name, word in passwords(settings).items()]

    def allowed(request: Request, given: Annotated[HTTPBasicCredentials | None, Depends(_BASIC)]) -> None:
        if request.headers.get("host", "") not in names:
            raise HTTPException(421)
        both = (given.username.encode(), given.password.encode()) if given else (b"", b"")
        # Each is compared with all, so that the time of an answer says nothing of them.
        if sum(all([*map(secrets.compare_digest, both, user)]) for user in users) == 0:
            raise HTTPException(401, headers={"WWW-Authenticate": 'Basic realm="Twofold"'})

    return allowed
