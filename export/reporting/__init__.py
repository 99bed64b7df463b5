"""Reports, benchmarks and inspection of bundles."""
