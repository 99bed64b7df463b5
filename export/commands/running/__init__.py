"""Commands that run and serve bundles."""
