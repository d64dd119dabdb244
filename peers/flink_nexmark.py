"""Nexmark's topics and queries in Flink SQL, as the tables of the domain `nexmark` have them."""

from __future__ import annotations

_SEEN = "seen_at AS PROCTIME(), WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
_PERSON = "id, name, city, state"
_AUCTION = "id, item_name, description, initial_bid, reserve, expires, seller, category, date_time, extra"
_BID = "auction, bidder, price, channel, url, date_time, extra"
TOPICS = {
    "person": (
        f"""
        id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
        date_time TIMESTAMP_LTZ(3), extra STRING, {_SEEN}
        """,
        _PERSON,
        "id, date_time",
    ),
    "auction": (
        f"""
        id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
        expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT, date_time TIMESTAMP_LTZ(3), extra STRING, {_SEEN}
        """,
        _AUCTION,
        "id, date_time",
    ),
    "bid": (
        f"""
        auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP_LTZ(3),
        extra STRING, {_SEEN}
        """,
        _BID,
        "auction, bidder, date_time",
    ),
}
"""Topic -> its columns, those that queries read, and what identifies its records."""

RESULTS = {
    "q1_currency": "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), date_time TIMESTAMP_LTZ(3), extra STRING",
    "q2_selection": "auction BIGINT, bidder BIGINT, date_time TIMESTAMP_LTZ(3), price BIGINT",
    "q3_local_items": "seller BIGINT, name STRING, city STRING, state STRING, id BIGINT",
    "q7_highest_bids": """
        starts_at TIMESTAMP(3), ends_at TIMESTAMP(3), auction BIGINT, bidder BIGINT, price BIGINT,
        date_time TIMESTAMP_LTZ(3), extra STRING
    """,
    "q11_user_sessions": """
        bidder BIGINT, starts_at TIMESTAMP(3), last_bid_at TIMESTAMP(3), bid_count BIGINT, ends_at TIMESTAMP(3)
    """,
    "q14_calculation": """
        auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), bid_time_type STRING, date_time TIMESTAMP_LTZ(3),
        extra STRING, c_counts BIGINT
    """,
    "q17_auction_days": """
        auction BIGINT, `day` TIMESTAMP(3), ends_at TIMESTAMP(3), total_bids BIGINT, rank1_bids BIGINT,
        rank2_bids BIGINT, rank3_bids BIGINT, min_price BIGINT, max_price BIGINT, avg_price BIGINT, sum_price BIGINT
    """,
    "q20_expanded_bids": """
        auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_date_time TIMESTAMP_LTZ(3),
        bid_extra STRING, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,
        auction_date_time TIMESTAMP_LTZ(3), expires TIMESTAMP_LTZ(3), seller BIGINT, category BIGINT,
        auction_extra STRING
    """,
}
_INSTANT = "CAST(date_time AS TIMESTAMP_LTZ(3))"  # as in `flink_sql`: a plain instant, not an event time
QUERIES = {
    "q1_currency": f"""
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)), {_INSTANT}, extra FROM bid_once
    """,
    "q2_selection": f"SELECT auction, bidder, {_INSTANT}, price FROM bid_once WHERE MOD(auction, 123) = 0",
    "q3_local_items": """
        SELECT a.seller, p.name, p.city, p.state, a.id
        FROM (SELECT id, seller FROM auction_once WHERE category = 10) AS a
        JOIN (SELECT id, name, city, state FROM person_once WHERE state IN ('OR', 'ID', 'CA')) AS p ON a.seller = p.id
    """,
    "q7_highest_bids": f"""
        SELECT window_start, window_end, auction, bidder, price, {_INSTANT}, extra FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY price DESC, date_time ASC
            ) AS nth
            FROM TABLE(TUMBLE(TABLE bid_once, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        ) WHERE nth = 1
    """,
    "q11_user_sessions": """
        SELECT bidder, window_start, window_end - INTERVAL '10' SECOND, COUNT(*), window_end
        FROM TABLE(SESSION(TABLE bid_once PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        GROUP BY bidder, window_start, window_end
    """,
    "q14_calculation": f"""
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)),
            CASE
                WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END,
            {_INSTANT}, extra, CAST(CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS BIGINT)
        FROM bid_once
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
    """,
    "q17_auction_days": """
        SELECT auction, window_start, window_end, COUNT(*),
            COUNT(*) FILTER (WHERE price < 10000),
            COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
            COUNT(*) FILTER (WHERE price >= 1000000),
            MIN(price), MAX(price), SUM(price) / COUNT(*), SUM(price)
        FROM TABLE(TUMBLE(TABLE bid_once, DESCRIPTOR(date_time), INTERVAL '1' DAY))
        GROUP BY auction, window_start, window_end
    """,
    "q20_expanded_bids": f"""
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`at`, b.extra, a.item_name, a.description,
            a.initial_bid, a.reserve, a.`at`, a.expires, a.seller, a.category, a.extra
        FROM (SELECT auction, bidder, price, channel, url, {_INSTANT} AS `at`, extra FROM bid_once) AS b
        JOIN (
            SELECT id, item_name, description, initial_bid, reserve, {_INSTANT} AS `at`, expires, seller, category,
                extra
            FROM auction_once WHERE category = 10
        ) AS a ON b.auction = a.id
    """,
}
