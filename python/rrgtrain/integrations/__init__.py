"""The trainer's parts inside other trainers."""
