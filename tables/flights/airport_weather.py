"""The latest observation of the weather at each airport."""

from tables import DataFrame, between, not_null, table, unique


@table(
    primary_key=["airport"],
    sequence_by=["observed_at"],
    checks=[unique("airport"), not_null("observed_at"), between("temperature_f", -80, 140)],
)
def airport_weather(weather: DataFrame) -> DataFrame:
    """One row per airport: what was observed last.

    observed_at: when the observation was made
    temperature_f: degrees Fahrenheit
    humidity_pct: relative humidity, percent
    wind_direction_deg: where the wind blows from, degrees
    wind_speed_mph: miles per hour
    precipitation_in: inches in the hour before
    visibility_mi: miles
    """
    return weather.select(
        "airport",
        "observed_at",
        "temperature_f",
        "humidity_pct",
        "wind_direction_deg",
        "wind_speed_mph",
        "precipitation_in",
        "visibility_mi",
    )
