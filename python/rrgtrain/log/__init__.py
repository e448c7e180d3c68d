"""The metrics of a run, and the trackers they go to."""
