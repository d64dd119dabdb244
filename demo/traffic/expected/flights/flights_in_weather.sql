SELECT
    flight_id, carrier, departed.origin, departed_at,
    dep_delay AS departure_delay_min,
    CASE WHEN recent THEN observed_at END AS observed_at,
    CASE WHEN recent THEN temp END AS temperature_f,
    CASE WHEN recent THEN wind_speed END AS wind_speed_mph,
    CASE WHEN recent THEN precip END AS precipitation_in,
    CASE WHEN recent THEN visib END AS visibility_mi
FROM departed
ASOF LEFT JOIN (SELECT *, true AS measured FROM observed) AS observed
    ON observed.origin = departed.origin AND departed.departed_at >= observed.observed_at,
LATERAL (SELECT measured AND observed_at >= departed_at - INTERVAL 2 HOURS AS recent)
