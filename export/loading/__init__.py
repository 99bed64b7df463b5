"""Opening a bundle in its runtime, in this process or in one of its own, with numpy and the runtime alone."""
