"""Spark: sessions in this process, the supervised Spark Connect server, and its clients."""
