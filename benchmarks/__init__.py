"""Benchmarks: ratios of calls measured side by side in one run, on the same seeded input."""
