"""Draw training studies by the diversity of their sampled reports (DEER)."""
