-- Of each text between ORs the longest word that must be there, the first in order of the alphabet, common ones last.
WITH rarest AS (
    SELECT search_id, nth, coalesce(
        first(word ORDER BY word IN ('the', 'is', 'here'), len(word) DESC, word) FILTER (word IS NOT NULL), '*'
    ) AS anchor
    FROM (
        SELECT search_id, nth, unnest(CASE WHEN is_not OR is_range THEN [NULL] ELSE words END) AS word
        FROM searched_parts
    )
    GROUP BY search_id, nth
),
anchors AS (
    SELECT search_id, unnest(CASE WHEN list_contains(list(anchor), '*') THEN ['*'] ELSE list(DISTINCT anchor) END)
        AS anchor
    FROM rarest GROUP BY search_id
)
SELECT search_id, customer, name, query, 'english' AS language,
    CASE WHEN anchor IS NULL THEN
        'position ' || (len(query) + 1) || ': expected a word, a phrase, a range, NOT or `(`; found the end.'
    END AS mistake,
    anchor
FROM searches_now LEFT JOIN anchors USING (search_id)
