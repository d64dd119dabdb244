"""Operations on rows in this process or in Spark, and the sizes from which Spark does the work."""
