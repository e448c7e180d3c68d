"""Radiographs of any kind as grey pixels, within bounds of size, area and memory."""
