"""Nexmark: an online auction with persons, auctions and bids, and sixteen of the benchmark's queries."""
