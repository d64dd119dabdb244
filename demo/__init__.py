"""The demo: a project with two domains, flights and a shop, and the traffic of their sources."""
