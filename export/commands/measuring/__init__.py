"""Commands that verify, measure and show bundles."""
