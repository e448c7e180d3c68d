"""Hold errors, files, progress and settings for every package; users import none of it."""
