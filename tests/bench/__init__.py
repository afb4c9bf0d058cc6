"""Speed and memory, measured: ``make bench``. Never a timed unit test."""
