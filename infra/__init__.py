"""Infrastructure: settings, Spark session, JVM jars, broker, supervision."""
