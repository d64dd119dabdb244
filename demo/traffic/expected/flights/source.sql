-- The files as they stand, restricted to a range of New York days, with instants worked out by DuckDB's own calendar.
-- Variables: flights_csv, airports_csv, weather_csv, start_day, end_day.

CREATE TEMP TABLE zone AS
SELECT faa AS airport, tzone AS name
FROM read_csv(getvariable('airports_csv'), header = true, nullstr = 'NA', all_varchar = true)
UNION ALL
VALUES ('BQN', 'America/Puerto_Rico'), ('PSE', 'America/Puerto_Rico'),
       ('SJU', 'America/Puerto_Rico'), ('STT', 'America/Puerto_Rico');

CREATE TEMP TABLE departed AS
SELECT
    carrier, flight, tailnum, origin, dest, dep_delay, arr_delay, air_time,
    arr_time // 100 % 24 * 60 + arr_time % 100 AS arrival_minute,
    time_hour + to_minutes(minute) AS scheduled_at,
    scheduled_at + to_minutes(dep_delay) AS departed_at,
    carrier || flight || '/' || strftime(scheduled_at AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%MZ') AS flight_id
FROM read_csv(
    getvariable('flights_csv'), header = true, nullstr = 'NA',
    columns = {
        'year': 'INTEGER', 'month': 'INTEGER', 'day': 'INTEGER', 'dep_time': 'INTEGER', 'sched_dep_time': 'INTEGER',
        'dep_delay': 'INTEGER', 'arr_time': 'INTEGER', 'sched_arr_time': 'INTEGER', 'arr_delay': 'INTEGER',
        'carrier': 'VARCHAR', 'flight': 'INTEGER', 'tailnum': 'VARCHAR', 'origin': 'VARCHAR', 'dest': 'VARCHAR',
        'air_time': 'INTEGER', 'distance': 'INTEGER', 'hour': 'INTEGER', 'minute': 'INTEGER', 'time_hour': 'TIMESTAMPTZ'
    }
)
WHERE make_date(year, month, day) >= getvariable('start_day')
  AND make_date(year, month, day) < getvariable('end_day')
  AND dep_time IS NOT NULL;

-- `unchanged` is the arrival if no clock was changed on the way. A clock that was shows another time then, by `shift`
-- minutes; without the shift it shows the right one, except where the time on it was skipped altogether.
CREATE TEMP TABLE flown AS
WITH aboard AS (
    SELECT
        departed.*, zone.name AS zone,
        departed_at AT TIME ZONE zone.name AS wall,
        (arrival_minute - (hour(wall) * 60 + minute(wall)) + 1440) % 1440 AS elapsed,
        departed_at + to_minutes(elapsed) AS unchanged,
        date_diff('minute', wall + to_minutes(elapsed), unchanged AT TIME ZONE zone.name) AS shift,
        unchanged - to_minutes(shift) AS shifted,
        shifted AT TIME ZONE zone.name AS shown
    FROM departed JOIN zone ON zone.airport = departed.dest
)
SELECT * EXCLUDE (wall, elapsed, unchanged, shift, shifted, shown, zone),
    CASE WHEN hour(shown) * 60 + minute(shown) = arrival_minute THEN shifted ELSE unchanged END AS arrived_at
FROM aboard;

-- The hour of 3 November that New York had twice is read as one; a range ends with a day, so it is never the latest.
CREATE TEMP TABLE observed AS
SELECT
    origin, temp, humid, wind_dir, wind_speed, precip, visib,
    make_timestamp(year, month, day, hour, 0, 0) AT TIME ZONE 'America/New_York' AS observed_at
FROM read_csv(
    getvariable('weather_csv'), header = true, nullstr = 'NA',
    columns = {
        'origin': 'VARCHAR', 'year': 'INTEGER', 'month': 'INTEGER', 'day': 'INTEGER', 'hour': 'INTEGER',
        'temp': 'DOUBLE', 'dewp': 'DOUBLE', 'humid': 'DOUBLE', 'wind_dir': 'INTEGER', 'wind_speed': 'DOUBLE',
        'wind_gust': 'DOUBLE', 'precip': 'DOUBLE', 'pressure': 'DOUBLE', 'visib': 'DOUBLE', 'time_hour': 'VARCHAR'
    }
)
WHERE make_date(year, month, day) >= getvariable('start_day')
  AND make_date(year, month, day) < getvariable('end_day');
