"""Builds the SparkSession: jars, Delta, the listener; settings that the user gave always win."""
