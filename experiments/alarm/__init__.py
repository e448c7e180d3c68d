"""Train policies that game a reward, and healthy ones, under the alarm of a run."""
