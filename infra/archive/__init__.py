"""Reads archived records directly from tiered storage, bypassing the broker.

    archive = open_archive(settings, ["flights.departures"])       # catalog: asks the broker what is archived
    archive.bounds("flights.departures")                           # plan: partition -> Bounds(start, end=frontier)
    archive.partitions["flights.departures"][0].segment_of(123)    # manifest: which segment has an offset; holes, bytes
    ranges = {"flights.departures": {0: (100, 900)}}               # topic -> partition -> [from, to)
    between(archive, "flights.departures", start_ms, end_ms)       # times: partition -> the offsets of a range of time
    frame(spark, archive, ranges, ["offset", "value"])             # source: a DataFrame, columns of the Kafka source
    read_all(archive.plan(ranges), archive.store, ["value"])       # read: Arrow batches in this process, without Spark
    log_frame(spark, settings, archive, topic, ranges[topic])      # union: archive, and the broker for the rest

Offsets that are not archived are refused before anything is read (NotArchived names the frontier, LogGap the hole);
damage is found while reading (CorruptSegment).
"""
