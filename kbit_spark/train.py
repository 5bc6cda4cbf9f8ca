"""The training job, top to bottom."""
