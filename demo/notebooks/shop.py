import marimo

__generated_with = "0.25.2"
app = marimo.App(app_title="Shop")


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # Shop: which orders are paid

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
    fresh = mo.sql("""FROM freshness WHERE "table" LIKE 'shop.%'""", engine=analytics)
    return (fresh,)


@app.cell
def _(analytics, mo):
    paid = mo.sql(
        """
        SELECT country, count(DISTINCT o.order_id) AS orders, count(DISTINCT p.order_id) AS paid,
            sum(p.cents) / 100 AS euros
        FROM shop.orders AS o LEFT JOIN shop.paid_orders AS p USING (order_id)
        GROUP BY country
        ORDER BY country
        """,
        engine=analytics,
    )
    return (paid,)


@app.cell
def _(alt, analytics):
    minutes = analytics.sql("""
        SELECT date_diff('minute', ordered_at, paid_at) AS minutes, count(*) AS payments
        FROM shop.paid_orders GROUP BY minutes ORDER BY minutes
    """).df()
    alt.Chart(minutes).mark_bar().encode(
        x=alt.X("minutes:Q", title="minutes from the order to its payment"), y=alt.Y("payments:Q", title="payments")
    ).properties(width="container")
    return (minutes,)


@app.cell
def _(analytics, mo):
    sold = mo.sql(
        """
        SELECT line, sum(lines)::BIGINT AS lines, sum(total) AS euros
        FROM shop.sold_lines GROUP BY line ORDER BY euros DESC, line LIMIT 20
        """,
        engine=analytics,
    )
    return (sold,)


if __name__ == "__main__":
    app.run()
