"""Everything outside our process: settings, Spark session, JVM jars, broker, supervision."""
