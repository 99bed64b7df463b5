"""Specifications of exports: signatures, their inputs, axes and probes."""
