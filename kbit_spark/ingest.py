"""The ingest job, top to bottom."""
