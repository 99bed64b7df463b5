"""Tracing and compiling: functions as programs, steps in place, XLA."""
