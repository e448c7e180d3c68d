"""Surround a loop: check, open data, open the policy, run the stages, report."""

from rrgtrain.run.checked import Checked, check
from rrgtrain.run.data import Data, check_data, open_data

__all__ = ["Checked", "Data", "check", "check_data", "open_data"]
