"""Files, progress and signals: imports nothing of the trainer but errors."""
