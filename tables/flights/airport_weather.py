"""The latest observation of the weather at each airport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quality.rules import between, not_null, unique
from tables.declaration import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


TABLE = Table(
    derive=airport_weather,
    key=["airport"],
    latest_by=["observed_at"],
    recompute_by=["airport"],
    every="2 seconds",
    rules=[unique("airport"), not_null("observed_at"), between("temperature_f", -80, 140)],
)
