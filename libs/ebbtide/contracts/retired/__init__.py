"""Shapes of events that are said no more, kept unchanged so that old logs can be read."""
