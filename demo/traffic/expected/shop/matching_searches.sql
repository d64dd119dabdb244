SELECT DISTINCT post_id, search_id, customer, name, query, author, posted_at, version, text
FROM (
    SELECT post_id, search_id, nth
    FROM (SELECT *, in_a_row(words_of(text)) AS written FROM posts_now) AS p CROSS JOIN searched_parts AS s
    GROUP BY post_id, search_id, nth
    HAVING bool_and(is_not <> CASE
        WHEN is_range THEN version >= coalesce(low, version) AND version <= coalesce(high, version)
        ELSE contains(written, in_a_row(words)) END)
)
JOIN posts_now USING (post_id) JOIN searches_now USING (search_id)
