"""Accelerators that bundles are written for, by name: what each takes, checked by rules and on its own simulator."""

from keras_transformer.export.errors import UnknownTargetError
from keras_transformer.export.targets.coreml import CoreML
from keras_transformer.export.targets.litert_gpu import LiteRTGPU
from keras_transformer.export.targets.microcontrollers.edge_tpu import EdgeTPU
from keras_transformer.export.targets.microcontrollers.ethos_u import EthosU
from keras_transformer.export.targets.microcontrollers.micro import Micro
from keras_transformer.export.targets.openvino import OpenVINO
from keras_transformer.export.targets.qnn import QNN
from keras_transformer.export.targets.target import Target
from keras_transformer.export.targets.webgpu import WebGPU
from keras_transformer.export.targets.xnnpack import XNNPACK

_CLASSES = (LiteRTGPU, XNNPACK, QNN, OpenVINO, CoreML, WebGPU, Micro, EthosU, EdgeTPU)
TARGETS: dict[str, type[Target]] = {each.name: each for each in _CLASSES}


def get_target(name: str | Target) -> Target:
    """The target of a name, with its default options; a `Target` is returned as it is.

    Raises:
        UnknownTargetError: the name is not a key of `TARGETS`.

    Example:

    >>> get_target("litert-gpu").format
    'tflite'
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str) or name not in TARGETS:
        raise UnknownTargetError(name, TARGETS)
    return TARGETS[name]()
