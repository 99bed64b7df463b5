"""Samplers: how the steps from noise to data follow from the predictions of a denoiser."""
