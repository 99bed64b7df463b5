"""Rewrites of TFLite graphs of fixed shapes into the operators that delegates of accelerators run."""
