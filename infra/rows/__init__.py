"""Rows, in this process or in Spark, and from how many on Spark does the work: no engine's, and everybody's."""
