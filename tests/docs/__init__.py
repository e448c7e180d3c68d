"""The code blocks of README and docs: found, checked against CLI and schema, run."""
