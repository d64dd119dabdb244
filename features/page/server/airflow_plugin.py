"""Adds the page to Airflow: in its navigation, and on each DAG and task."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/twofold"


@functools.cache
def _application() -> Any:
    """Makes the application, for users who may see plugins."""
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
    from airflow.api_fastapi.core_api.security import requires_access_view

    from twofold.features.page.server.app import application
    from twofold.infra.project.settings import Settings

    return application(Settings.from_environment(), requires_access_view(AccessView.PLUGINS), airflow=True)


async def page(scope: Any, receive: Any, send: Any) -> None:
    """Answers a request by the application, which is made at the first one: every process of Airflow loads plugins."""
    application = await asyncio.to_thread(_application)
    await application(scope, receive, send)


class TwofoldPage(AirflowPlugin):
    """Mounts the page below `/twofold`, and shows it in a frame."""

    name = "twofold_page"
    fastapi_apps = [{"app": page, "url_prefix": PREFIX, "name": "Twofold"}]  # noqa: RUF012 - Airflow declares it so
    external_views = [  # noqa: RUF012 - Airflow declares it so
        {"name": "Twofold", "href": "twofold/", "destination": "nav", "url_route": "twofold", "nav_top_level": True},
        {"name": "Twofold", "href": "twofold/dag/{DAG_ID}", "destination": "dag", "url_route": "twofold_dag"},
        {
            "name": "Twofold",
            "href": "twofold/dag/{DAG_ID}/{TASK_ID}",
            "destination": "task",
            "url_route": "twofold_task",
        },
    ]
