"""One module a layout of files, and what several of them read with."""
