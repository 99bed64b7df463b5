"""Running bundles with numpy and the runtime alone."""
