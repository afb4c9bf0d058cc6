"""What tests stand on: full in-memory twins of the log and the bus, builders, checks over the log.

Production code never imports it; only entries that run without a platform do.
"""
