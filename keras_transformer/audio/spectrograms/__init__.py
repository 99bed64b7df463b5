"""Spectrograms of sound, in the forms that models take."""
