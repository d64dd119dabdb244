SELECT
    origin AS airport,
    observed_at,
    temp AS temperature_f,
    humid AS humidity_pct,
    wind_dir AS wind_direction_deg,
    wind_speed AS wind_speed_mph,
    precip AS precipitation_in,
    visib AS visibility_mi
FROM observed
QUALIFY row_number() OVER (PARTITION BY airport ORDER BY observed_at DESC) = 1
