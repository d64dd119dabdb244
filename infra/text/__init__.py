"""Words of texts, and stored queries over them."""
