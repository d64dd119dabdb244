"""Plans the changes of rewrites of history, and publishes them."""
