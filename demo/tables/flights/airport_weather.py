"""The latest observation of the weather at each airport."""

from twofold import DataFrame, between, not_null, table, unique


@table(
    primary_key=["airport"],
    sequence_by=["observed_at"],
    checks=[unique("airport"), not_null("observed_at"), between("temperature_f", -80, 140)],
)
def airport_weather(weather: DataFrame) -> DataFrame:
    """One row per airport: what was observed last."""
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
