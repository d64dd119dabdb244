-- The records of the topics, as JSON has them, each once, with their types. The field lines is a text.
CREATE TABLE ordered AS
SELECT DISTINCT
    order_id, buyer.customer, product, cents::INTEGER AS cents, country,
    ordered_at::TIMESTAMPTZ AS ordered_at,
    json_transform(lines::JSON, '[{"product": "VARCHAR", "price": "DECIMAL(10,2)",
        "wishes": {"note": "VARCHAR", "at": "TIMESTAMPTZ"}}]') AS lines,
    map_from_entries(list_sort(map_entries(labels::JSON::MAP(VARCHAR, BIGINT)))) AS labels
FROM orders;

CREATE TABLE tried AS
SELECT DISTINCT payment_id, order_id, card, outcome, tried_at::TIMESTAMPTZ AS tried_at
FROM payments;

CREATE TABLE cart_changes AS
SELECT cart_id, version::INTEGER AS version, kind, product, quantity::INTEGER AS quantity,
    happened_at::TIMESTAMPTZ AS happened_at,
    count(DISTINCT happened_at) OVER (PARTITION BY cart_id, version) > 1 AS is_twice
FROM cart_events
QUALIFY row_number() OVER (PARTITION BY cart_id, version ORDER BY _offset) = 1;

CREATE TABLE searched AS SELECT DISTINCT search_id, terms, searched_at::TIMESTAMPTZ AS searched_at FROM searches;

CREATE TABLE clicked AS
SELECT DISTINCT click_id, search_id, product, clicked_at::TIMESTAMPTZ AS clicked_at FROM clicks;

CREATE TABLE logged_in AS
SELECT DISTINCT login_id, customer, country, logged_in_at::TIMESTAMPTZ AS logged_in_at FROM logins;

CREATE TABLE cart_states AS
-- The sums of a product within its cart, never below nothing: what was taken out before it was put in is not there.
-- Lindley: the sum less the least of its earlier values that is below nothing.
WITH ordered_since AS (
    SELECT *, coalesce(bool_or(kind = 'ordered') OVER before, false) AS is_ordered
    FROM cart_changes
    WINDOW before AS (PARTITION BY cart_id ORDER BY version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
changes AS (
    SELECT cart_id, version, product,
        CASE WHEN is_ordered THEN 0 WHEN kind = 'added' THEN quantity ELSE -quantity END AS change
    FROM ordered_since WHERE kind <> 'ordered'
),
states AS (
    SELECT c.cart_id, c.version, p.product, coalesce(d.change, 0) AS change
    FROM cart_changes AS c
    JOIN (SELECT DISTINCT cart_id, product FROM changes) AS p USING (cart_id)
    LEFT JOIN changes AS d ON d.cart_id = c.cart_id AND d.version = c.version AND d.product = p.product
),
sums AS (
    SELECT *, sum(change) OVER (PARTITION BY cart_id, product ORDER BY version) AS total FROM states
),
quantities AS (
    SELECT *, (total - least(0, min(total) OVER (PARTITION BY cart_id, product ORDER BY version)))::INTEGER AS quantity
    FROM sums
),
contents AS (
    SELECT cart_id, version,
        coalesce(
            list({'product': product, 'quantity': quantity} ORDER BY product) FILTER (quantity > 0), []
        ) AS lines
    FROM quantities GROUP BY ALL
),
steps AS (
    SELECT *,
        coalesce(lines, []) AS held,
        coalesce(lag(version) OVER following, 0) + 1 AS due,
        coalesce(lag(lines) OVER following, []) AS held_before
    FROM ordered_since LEFT JOIN contents USING (cart_id, version)
    WINDOW following AS (PARTITION BY cart_id ORDER BY version)
),
judged AS (
    SELECT *, CASE
        WHEN version > due THEN 'version ' || due || ' is missing'
        WHEN is_twice THEN 'version ' || version || ' is there twice'
        WHEN is_ordered THEN 'version ' || version || ' comes after the order'
        WHEN kind = 'ordered' AND len(held_before) = 0 THEN 'version ' || version || ' orders nothing'
        WHEN kind = 'removed'
            AND quantity > coalesce(list_filter(held_before, lambda line: line.product = steps.product)[1].quantity, 0)
            THEN 'version ' || version || ' removes more than there is'
        END AS own_fault
    FROM steps
)
SELECT
    cart_id, version,
    CASE WHEN is_ordered OR kind = 'ordered' THEN 'ordered' ELSE 'open' END AS state,
    held AS lines,
    first_value(own_fault IGNORE NULLS) OVER following AS fault,
    happened_at AS valid_from,
    lead(happened_at) OVER following AS valid_to
FROM judged
WINDOW following AS (PARTITION BY cart_id ORDER BY version);

-- Posts and follows: of records that agree in what identifies them the first in the log counts.
CREATE TABLE posts_now AS
WITH known AS (
    SELECT * REPLACE (happened_at::TIMESTAMPTZ AS happened_at, version::INTEGER AS version) FROM post_events
    QUALIFY row_number() OVER (PARTITION BY post_id, version, kind, happened_at::TIMESTAMPTZ ORDER BY _offset) = 1
)
SELECT post_id, author, min(happened_at) OVER of_post AS posted_at, version, product, text
FROM known
WINDOW of_post AS (PARTITION BY post_id)
QUALIFY NOT bool_or(kind = 'deleted') OVER of_post
    AND row_number() OVER (
        PARTITION BY post_id
        ORDER BY version DESC, happened_at DESC, author DESC, product DESC NULLS LAST, text DESC NULLS LAST
    ) = 1;

CREATE TABLE follows_now AS
SELECT follower, author, last_at AS followed_at
FROM (
    SELECT follower, author, max(happened_at::TIMESTAMPTZ) FILTER (kind = 'followed') AS last_at,
        max(happened_at::TIMESTAMPTZ) FILTER (kind = 'unfollowed') AS ended_at
    FROM follow_events GROUP BY follower, author
)
WHERE last_at > coalesce(ended_at, '-infinity');

SET VARIABLE most_followers = 50;

-- Saved searches: the last of each, without those that a record without a value removed.
CREATE TABLE searches_now AS
SELECT search_id, customer, name, query
FROM (
    SELECT _key AS search_id, customer, name, query FROM saved_searches
    QUALIFY row_number() OVER (PARTITION BY _key ORDER BY _offset DESC) = 1
)
WHERE query IS NOT NULL;

CREATE MACRO words_of(text) AS
    list_transform(regexp_extract_all(strip_accents(lower(text)), '[a-z0-9]+'), lambda word: stem(word, 'english'));
CREATE MACRO in_a_row(words) AS ' ' || array_to_string(coalesce(words, []), ' ') || ' ';

-- What the searches of traffic and tests are made of: texts between ORs, of which one must be met; of such a text
-- all parts must be met. A search with a parenthesis is one that cannot be read.
CREATE TABLE searched_parts AS
SELECT *, words_of(what) AS words,
    try_cast(regexp_extract(what, '^version:(\d*)\.\.(\d*)$', 1) AS INTEGER) AS low,
    try_cast(regexp_extract(what, '^version:(\d*)\.\.(\d*)$', 2) AS INTEGER) AS high,
    what LIKE 'version:%' AS is_range
FROM (
    SELECT search_id, nth, part LIKE 'NOT %' AS is_not, regexp_replace(part, '^NOT ', '') AS what
    FROM (
        SELECT search_id, nth, unnest(regexp_extract_all(alternative, '(?:NOT )?(?:"[^"]*"|[^ ]+)')) AS part
        FROM (
            SELECT search_id, unnest(string_split(query, ' OR ')) AS alternative,
                generate_subscripts(string_split(query, ' OR '), 1) AS nth
            FROM searches_now WHERE query NOT LIKE '%('
        )
    )
);
