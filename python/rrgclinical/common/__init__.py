"""Hold errors, files, progress, signals and settings for every package; users import none of it."""
