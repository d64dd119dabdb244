import marimo

__generated_with = "0.25.2"
app = marimo.App(app_title="Flights")


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # Flights: delays, and what late records changed

    `analytics` is DuckDB over all tables, read-only; its rows are those of now. `FROM dictionary` says what columns
    hold.
    """)
    return


@app.cell
def _():
    import altair as alt
    import marimo as mo

    from twofold.features.analysts.analytics_file import open_analytics

    analytics = open_analytics()
    return alt, analytics, mo


@app.cell
def _(analytics, mo):
    fresh = mo.sql("""FROM freshness WHERE "table" LIKE 'flights.%'""", engine=analytics)
    return (fresh,)


@app.cell
def _(analytics, mo):
    origins = analytics.sql("SELECT DISTINCT origin FROM flights.delays_by_hour ORDER BY origin").fetchall()
    origin = mo.ui.dropdown([name for (name,) in origins], value=origins[0][0] if origins else None, label="Origin")
    origin
    return (origin,)


@app.cell
def _(alt, analytics, origin):
    hours = analytics.execute(
        """
        SELECT hour, flights, mean_delay_min, _corrections > 0 AS corrected
        FROM flights.delays_by_hour_with_corrections WHERE origin = ? ORDER BY hour
        """,
        [origin.value],
    ).df()
    alt.Chart(hours).mark_point(filled=True).encode(
        x=alt.X("hour:T", title=None),
        y=alt.Y("mean_delay_min:Q", title="mean delay, minutes"),
        size=alt.Size("flights:Q", title="flights"),
        color=alt.Color("corrected:N", title="corrected since"),
    ).properties(width="container")
    return (hours,)


@app.cell
def _(analytics, mo):
    changed = mo.sql(
        """
        SELECT origin, hour, (_before ->> 'flights')::BIGINT AS flights_before, flights,
            (_before ->> 'mean_delay_min')::DOUBLE AS mean_before, mean_delay_min AS mean_now, _cause, _corrected_at
        FROM flights.delays_by_hour_with_corrections
        WHERE _corrections > 0
        ORDER BY _corrected_at DESC, origin, hour
        """,
        engine=analytics,
    )
    return (changed,)


if __name__ == "__main__":
    app.run()
