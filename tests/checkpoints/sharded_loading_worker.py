"""Loads checkpoints whole, and onto eight virtual devices that each read their part; prints what differs, and bytes read.

python tests/checkpoints/sharded_loading_worker.py llama-CausalLM gpt2-LMHeadModel
"""

import json
import os
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import keras
import numpy as np

from keras_transformer import checkpoints, training
from keras_transformer.checkpoints.files import folder as folders

CHECKPOINTS = Path(__file__).parents[1] / "data" / "checkpoints"
read = {"elements": 0}


class Counted(folders.LazyTensor):
    def __init__(self, shape, part):
        def counted(bounds):
            array = part(bounds)
            read["elements"] += array.size
            return array

        super().__init__(shape, counted)


def load(name):
    keras.utils.set_random_seed(0)
    return checkpoints.from_huggingface(CHECKPOINTS / name, verbose=0)


def compared(name):
    whole = [np.asarray(weight.value) for weight in load(name).weights]
    read["elements"] = 0
    model = training.distributed(lambda: load(name), model_parallel=2, fully_sharded=True)
    keras.distribution.set_distribution(None)
    equal = [np.array_equal(a, np.asarray(b.value)) for a, b in zip(whole, model.weights, strict=True)]
    split = [weight for weight in model.weights if not weight.value.is_fully_replicated]
    return {
        "name": name,
        "differ": [weight.path for weight, same in zip(model.weights, equal, strict=True) if not same],
        "split": sum(weight.value.size for weight in split) / sum(array.size for array in whole),
        "read": read["elements"] / sum(array.size for array in whole),
    }


if __name__ == "__main__":
    folders.LazyTensor = Counted
    for each in sys.argv[1:]:
        print(json.dumps(compared(each)), flush=True)
