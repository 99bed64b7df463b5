"""What every test shares. Set before TensorFlow loads: less noise."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import keras
import pytest


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(0)
