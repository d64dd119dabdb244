# Written by `.venv/bin/python -m docs.generate`.
from twofold.features.search.search_output import to_search as to_search
from twofold.features.search.stored_searches import search_matches as search_matches
from twofold.features.search.stored_searches import search_terms as search_terms
