"""Hourly observations of the weather at an airport.

airport: IATA code
observed_at: when the observation was made
temperature_f: degrees Fahrenheit
dew_point_f: degrees Fahrenheit
humidity_pct: relative humidity, percent
wind_direction_deg: where the wind blows from, degrees
wind_speed_mph, wind_gust_mph: miles per hour
precipitation_in: inches in the hour before
pressure_mb: pressure at sea level, millibars
visibility_mi: miles
reported_at: when the station reported it
"""

from twofold import Topic, between, matches

TOPIC = Topic(
    schema={
        "airport": "string",
        "observed_at": "timestamp",
        "temperature_f": "double?",
        "dew_point_f": "double?",
        "humidity_pct": "double?",
        "wind_direction_deg": "int?",
        "wind_speed_mph": "double?",
        "wind_gust_mph": "double?",
        "precipitation_in": "double?",
        "pressure_mb": "double?",
        "visibility_mi": "double?",
        "reported_at": "timestamp",
    },
    event_time="observed_at",
    report_time="reported_at",
    message_key="airport",
    dedup_keys=["airport"],
    checks=[
        matches("airport", r"[A-Z]{3}"),
        between("observed_at", "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"),
        between("temperature_f", -80, 140),
        between("humidity_pct", 0, 100),
        between("wind_direction_deg", 0, 360),
    ],
    partitions=1,
    segment_bytes=1 << 20,  # a month is a few megabytes: small segments reach the archive at once
)
