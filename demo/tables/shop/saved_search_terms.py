"""The words by which a post finds the saved searches that it may meet."""

from twofold import DataFrame, expression, latest_values, search_terms, table


@table(primary_key=["search_id", "anchor"], checks=[expression("mistake IS NULL")])
def saved_search_terms(saved_searches: DataFrame) -> DataFrame:
    """One row per saved search and word by which a post finds it; a search that cannot be read has one row.

    anchor: the word, or `*` for every post; null if the search cannot be read
    mistake: why it cannot be read
    language: by whose rules the words are cut
    """
    newest = latest_values(saved_searches, key=["search_id"], columns=["customer", "name", "query"])
    return search_terms(newest, numbers=["version"], common=["the", "is", "here"])
