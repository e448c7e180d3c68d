"""Surround a loop: check, open data, open the policy, run the stages, report."""
