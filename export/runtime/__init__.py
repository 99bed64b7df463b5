"""Running bundles with only numpy and the runtime."""
