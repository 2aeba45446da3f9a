"""Benchmarks: what a task costs here, beside a2a-sdk and beside bare floors. Run by `make bench`."""
