"""Mixtures of experts and their routers."""
