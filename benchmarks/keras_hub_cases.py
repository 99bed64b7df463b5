"""Small models of KerasHub with random weights: what `every_keras_hub.py` exports.

Each backbone, and each task of the kinds in `TASKS`, is found in the installed KerasHub. Most are built by the rules `SIZES`
and `LENGTHS`; what a class needs beside them is in `ARGUMENTS`, and in `INPUTS` what its inputs need.
"""

import functools
import importlib
import inspect

import numpy as np
from keras_hub_arguments import ARGUMENTS, INPUTS, LENGTH, LENGTHS, SIZES, Part

TASKS = ("DepthEstimator", "ImageClassifier", "ImageSegmenter", "ObjectDetector", "TextClassifier")
ABSTRACT = ("Backbone", "FeaturePyramidBackbone", "ImageObjectDetector", "Classifier", *TASKS)


@functools.cache
def classes():
    """The backbones and tasks of the installed KerasHub, by name; of two names for one class that of the class."""
    import keras_hub

    models = keras_hub.models
    kinds = (models.Backbone, *(getattr(models, name) for name in TASKS))
    found = [each for each in vars(models).values() if inspect.isclass(each) and issubclass(each, kinds)]
    return {each.__name__: each for each in found if each.__name__ not in ABSTRACT}


def family(name):
    """The folder of KerasHub that a class is in: `"bert"`."""
    return classes()[name].__module__.split(".")[3]


def missing(name):
    """The arguments that a class must be told, and which neither its case nor a rule gives."""
    given = {"backbone", *SIZES, *LENGTHS, *ARGUMENTS.get(name, {})}
    return [each for each in _required(classes()[name]) if each not in given]


def build(name):
    """A small model of a class, with random weights, and inputs of one length where it needs them."""
    import keras

    keras.utils.set_random_seed(0)
    model = built(Part(name, ARGUMENTS.get(name, {})))
    random = np.random.default_rng(0)
    for weight in model.weights:
        if weight.trainable:  # Not the initial values, so that a missing bias or scale is found.
            spread = min(0.05, 0.5 * np.prod(weight.shape[:-1]) ** -0.5)
            weight.assign(weight.numpy() + random.normal(0, spread, weight.shape).astype(weight.dtype))
        elif weight.path.endswith("moving_mean"):
            weight.assign(random.normal(0, 0.05, weight.shape))
        elif weight.path.endswith("moving_variance"):
            weight.assign(random.uniform(0.5, 1.5, weight.shape))
    if name not in LENGTH:
        return model
    inputs = {key: keras.Input((LENGTH[name],), dtype=each.dtype, name=key) for key, each in model.input.items()}
    return keras.Model(inputs, model(inputs))


def arrays(name, model):
    """Two examples for a model, by the names of its inputs."""
    random = np.random.default_rng(1)
    own = INPUTS.get(name, {})
    return {each.name: _array(random, each, own.get(each.name)) for each in model.inputs}


def _required(cls):
    parameters = inspect.signature(cls).parameters.values()
    return [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]


def _class(path):
    if path in classes():
        return classes()[path]
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def built(value):
    """An argument with the parts in it built."""
    if not isinstance(value, Part):
        return value
    cls = _class(value.name)
    parameters = inspect.signature(cls).parameters
    arguments = {name: SIZES[name] for name in _required(cls) if name in SIZES}
    arguments |= {name: size for name, size in LENGTHS.items() if name in parameters}
    arguments |= {name: built(each) for name, each in value.arguments.items()}
    if "backbone" in parameters and "backbone" not in arguments:  # A task.
        backbone = cls.backbone_cls.__name__
        arguments["backbone"] = built(Part(backbone, ARGUMENTS.get(backbone, {})))
    return cls(**arguments)


def _array(random, tensor, own):
    """Values for an input."""
    dtype, name = np.dtype(tensor.dtype), tensor.name
    if isinstance(own, list):
        return np.array(own, dtype)
    shape = (2, *(own or _shape(tensor.shape[1:])))
    if "mask" in name and len(shape) == 2:  # The second example is shorter.
        return (np.arange(shape[1]) < np.array([[shape[1]], [shape[1] - 2]])).astype(dtype)
    if name == "position_ids":
        return np.tile(np.arange(shape[1], dtype=dtype), (2, 1))
    if name in ("segment_ids", "labels", "box_labels") or dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(1, 20, shape).astype(dtype)
    return (random.uniform(0, 1, shape) if len(shape) > 3 else random.normal(size=shape)).astype(dtype)


def _shape(shape):
    """The shape of an example, where some of its sizes are dynamic."""
    if len(shape) == 3 and shape[:2] == (None, None):
        return (64, 96, shape[2])
    return tuple(size or 7 for size in shape)
