"""The application: routes that all only read, and the rights of an answer in a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from twofold.features.page.charts import Series, curve, stacked_bars
from twofold.features.page.links import Links
from twofold.features.page.platform_status import PlatformStatus, StatusCache
from twofold.features.page.rendering import FOLDER, render
from twofold.features.page.views.lists import MOST, WEEK, counts_by_word, found, table_lines, topic_lines
from twofold.features.page.views.proofs_page import proofs_page
from twofold.features.page.views.table_page import MANY_CORRECTIONS, MOST_CORRECTIONS, WEEKS, TablePage, table_page
from twofold.infra import COMMAND
from twofold.infra.delta.lake import Lake
from twofold.infra.project.settings import Settings
from twofold.status.late_cost import SIZES, late_corrections
from twofold.status.parts.series import SPANS
from twofold.status.store import Store
from twofold.status.table_health import WORDS
from twofold.status.words import CAUSES

if TYPE_CHECKING:
    from twofold.status.plan_views import PlanView

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
NOT_LOOKED = "Nothing is known yet: no command has looked at the platform."
STREAM, AUDITS, REWRITES = "stream", ("audit", "audit_topic"), ("repair", "rebuild", "recover", "replay", "redrive")
"""Kinds of the DAGs of a domain that lead to pages of their own."""
WAITING = ("open", "begun")
"""The states of a plan that waits for a person."""
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def application(
    settings: Settings, allowed: Callable[..., Any], *, airflow: bool = False, cache: StatusCache | None = None
) -> FastAPI:
    """Returns the application.

    Args:
        allowed: a dependency of every route, which raises `HTTPException` for those who may not read.
        airflow: whether it is mounted in Airflow, and links to it.
    """
    app = FastAPI(title="Twofold", dependencies=[Depends(allowed)], docs_url=None, redoc_url=None, openapi_url=None)
    pages = _Pages(settings, airflow, cache or StatusCache(settings))
    html: dict[str, Any] = {"methods": ["GET"], "response_class": HTMLResponse}
    app.add_api_route("/", pages.home, **html)
    app.add_api_route("/map", pages.map, **html)
    app.add_api_route("/tables", pages.tables, **html)
    app.add_api_route("/tables/{name}", pages.table, **html)
    app.add_api_route("/tables/{name}/row", pages.row, **html)
    app.add_api_route("/columns/{name}/{column}", pages.column, **html)
    app.add_api_route("/topics", pages.topics, **html)
    app.add_api_route("/topics/{name}", pages.topic, **html)
    app.add_api_route("/plans", pages.plans, **html)
    app.add_api_route("/plans/{name}", pages.plan, **html)
    app.add_api_route("/proofs", pages.proofs, **html)
    app.add_api_route("/find", pages.find, **html)
    app.add_api_route("/dag/{dag}", pages.dag, **html)
    app.add_api_route("/dag/{dag}/{task}", pages.dag, **html)
    app.add_api_route("/static/{file}", _static, methods=["GET"])
    app.add_api_route("/{path:path}", _unknown, methods=_METHODS)  # so that unknown paths ask who it is, too
    app.add_exception_handler(HTTPException, pages.refused)  # type: ignore[arg-type]
    app.middleware("http")(_with_headers)
    return app


async def _with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    response.headers.update(HEADERS)
    return response


def _static(file: str) -> Response:
    if file not in STATIC:
        raise HTTPException(404)
    return Response((FOLDER / "static" / file).read_bytes(), media_type=STATIC[file])


def _unknown(request: Request) -> Response:
    raise HTTPException(404 if request.method in ("GET", "HEAD") else 405)


class _Pages:
    """The handlers; each reads what is known, and renders a template."""

    def __init__(self, settings: Settings, airflow: bool, cache: StatusCache) -> None:
        self._lake, self._airflow, self._cache = Lake(settings), airflow, cache
        self._settings, self._store = settings, Store(settings)

    def home(self, request: Request) -> Response:
        platform = self._platform()
        lines = table_lines(platform)
        counts = counts_by_word([*lines, *topic_lines(platform)])
        week = late_corrections(self._lake, platform.now.at - WEEK, platform.now.at)
        return self._page(
            request, "home.html", platform, counts=counts, words=WORDS,
            lines=lines[:MOST], more=max(0, len(lines) - MOST), week=week, section="",
            waiting=[view for view in self._plans() if view.state in WAITING],
        )  # fmt: skip

    def _plans(self) -> list[PlanView]:
        from twofold.status.plan_views import plan_views

        return plan_views(self._settings, datetime.now(UTC))

    def tables(self, request: Request, health: str = "") -> Response:
        platform = self._platform()
        lines = table_lines(platform)
        shown = [line for line in lines if health in ("", line.word)]
        return self._page(
            request, "tables.html", platform, lines=shown[:MOST], more=max(0, len(shown) - MOST), total=len(lines),
            counts=counts_by_word(lines), words=WORDS, filter=health, section="tables",
        )  # fmt: skip

    def table(self, request: Request, name: str, span: str = "", corrections: str = "") -> Response:
        from twofold.features.page.views.over_time import chosen_span, table_over_time

        platform = self._platform()
        page = table_page(platform, self._lake, name)
        if page is None:
            raise HTTPException(404)
        return self._page(
            request, "table.html", platform, page=page, weeks=WEEKS, causes=CAUSES, charts=_charts(page),
            most_corrections=MANY_CORRECTIONS if corrections else MOST_CORRECTIONS,
            more_corrections=None if corrections else MANY_CORRECTIONS, section="tables", spans=SPANS,
            over_time=table_over_time(self._store, platform, name, chosen_span(span)),
            row_query=lambda key: {f"k.{column}": str(value) for column, value in key.items()},
        )  # fmt: skip

    def row(self, request: Request, name: str) -> Response:
        from twofold.features.page.views.row_page import row_page

        platform = self._platform()
        entry = platform.catalog.get(name)
        if entry is None or entry.kind != "table":
            raise HTTPException(404)
        return self._page(request, "row.html", platform, section="tables", **row_page(entry, request.query_params))

    def column(self, request: Request, name: str, column: str) -> Response:
        from twofold.features.page.views.column_page import column_page

        platform = self._platform()
        page = column_page(platform, self._links(request, platform), name, column)
        if page is None:
            raise HTTPException(404)
        return self._page(request, "column.html", platform, page=page, section=f"{page.entry.kind}s")

    def topics(self, request: Request) -> Response:
        platform = self._platform()
        return self._page(request, "topics.html", platform, lines=topic_lines(platform), section="topics")

    def topic(self, request: Request, name: str, span: str = "") -> Response:
        from twofold.features.page.views.over_time import catch_up_s, chosen_span, lateness, topic_over_time

        platform = self._platform()
        state = next((topic for topic in platform.now.topics if topic.name == name), None)
        if state is None:
            raise HTTPException(404)
        tiered, health = [p.tiered for p in state.partitions if p.tiered is not None], platform.healths[name]
        return self._page(
            request, "topic.html", platform, state=state, entry=health.entry, health=health, section="topics",
            gaps=[gap for gap in platform.now.gaps if gap.topic == name], archive=sum(tiered) if tiered else None,
            over_time=topic_over_time(self._store, platform, name, chosen_span(span)), spans=SPANS,
            catch_up_s=catch_up_s(self._store, platform, name, state.lag),
            lateness=lateness(self._store, platform, health.entry),
        )  # fmt: skip

    def map(self, request: Request, start: str = "", word: str = "") -> Response:
        from twofold.features.page.views.map_page import map_page

        platform = self._platform()
        drawn = map_page(platform, self._links(request, platform), start, word)
        return self._page(request, "map.html", platform, map=drawn, section="map")

    def plans(self, request: Request) -> Response:
        platform, plans = self._platform(), self._plans()
        waiting = sum(view.state in WAITING for view in plans)
        return self._page(request, "plans.html", platform, plans=plans, waiting=waiting, section="plans")

    def plan(self, request: Request, name: str) -> Response:
        from twofold.status.plan_views import plan_view

        platform, view = self._platform(), plan_view(self._settings, name, datetime.now(UTC))
        if view is None:
            raise HTTPException(404)
        return self._page(request, "plan.html", platform, view=view, section="plans")

    def proofs(self, request: Request) -> Response:
        platform = self._platform()
        return self._page(request, "proofs.html", platform, page=proofs_page(platform, self._lake), section="proofs")

    def find(self, request: Request, q: str = "") -> Response:
        platform = self._platform()
        names, links = found(platform, q), self._links(request, platform)
        if len(names) == 1:
            return RedirectResponse(links.about(names[0]), status_code=303)
        text = (
            "These have it in their name, a column, or their description:" if names else "Nothing has it in its name."
        )
        return self._message(request, f"Search: {q}" if q else "Search", text, platform=platform, names=names, query=q)

    def dag(self, request: Request, dag: str, task: str = "") -> Response:
        """Leads from a DAG of Airflow, or one of its tasks, to what it is about."""
        platform = self._platform()
        links = self._links(request, platform)
        domain, _, rest = dag.partition(".")
        kind, _, table = rest.partition(".")
        if name := next((name for name in (f"{domain}.{table}", task) if name in platform.catalog), ""):
            return RedirectResponse(links.about(name), status_code=303)
        pages = {STREAM: links.to("map", word=f"{domain}."), **dict.fromkeys(AUDITS, links.to("proofs"))}
        return RedirectResponse(pages.get(kind, links.to("plans" if kind in REWRITES else "")), status_code=303)

    def refused(self, request: Request, error: HTTPException) -> Response:
        """Answers an error as a page; who may not read learns nothing else."""
        heading, text = {
            401: ("Log in again", "Your session has ended, or you have not logged in."),
            403: ("Not for you", "Your role may not read this page. An administrator of Airflow can change that."),
            404: ("There is no such page", "Nothing has this name; topics and tables are `domain.name`."),
            405: (
                "This page only reads",
                f"Rewrites of history are approved and published in Airflow, or by `{COMMAND}`.",
            ),
            503: ("Nothing is known yet", str(error.detail)),
        }.get(error.status_code, ("It did not work", str(error.detail)))
        action = self._links(request, None).in_airflow() if error.status_code == 401 and self._airflow else ""
        command = f"{COMMAND} status" if error.status_code == 503 else ""
        return self._message(
            request, heading, text, status=error.status_code, headers=error.headers, action=action, command=command
        )

    def _platform(self) -> PlatformStatus:
        platform = self._cache.newest()
        if platform is None:
            raise HTTPException(503, NOT_LOOKED)
        return platform

    def _links(self, request: Request, platform: PlatformStatus | None) -> Links:
        return Links(str(request.scope.get("root_path", "")), platform.catalog if platform else {}, self._airflow)

    def _page(self, request: Request, template: str, platform: PlatformStatus, **values: Any) -> Response:
        links = self._links(request, platform)
        return HTMLResponse(render(template, platform=platform, links=links, **{"query": "", **values}))

    def _message(
        self, request: Request, heading: str, text: str, *, status: int = 200, headers: Any = None,
        platform: PlatformStatus | None = None, **values: Any,
    ) -> Response:  # fmt: skip
        given = {"command": "", "names": (), "action": "", "action_text": "Log in", "query": "", **values}
        given |= {"platform": platform, "links": self._links(request, platform), "heading": heading, "text": text}
        page = render("message.html", section=None, **given)
        return HTMLResponse(page, status_code=status, headers=headers)


def _charts(page: TablePage) -> dict[str, Any]:
    """Draws the charts of the page of a table."""
    weeks, cost = list(page.cost.weeks), page.cost
    sizes = [Series(size, f"k{n}", [cost.weeks[week].get(size, 0) for week in weeks]) for n, size in enumerate(SIZES)]
    sizes = [size for size in sizes if any(size.values)]
    return {
        "cost_by_week": stacked_bars(
            "Corrected rows by week and size of error", "week of", [f"{week:%d %b}" for week in weeks], sizes
        ),
        "by_delay": curve(
            "Rows that would still be wrong, by how long the watermark waits",
            "delay",
            [delay for delay, _ in page.delays],
            Series("still wrong, at most", "line", [count for _, count in page.delays]),
            saved="saved, at least",
            say="say",
        ),
    }
