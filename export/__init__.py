"""From a Keras model to a bundle of files that are proven to compute the same, and back from the bundle to results.

Names load on first use: importing this package imports neither TensorFlow nor Keras.
"""

from keras_transformer.lazy import lazy

_HOMES = {
    "export": "api",
    "export_spec": "api",
    "load": "runtime",
    "verify_bundle": "verify",
    "bench_bundle": "bench",
    "write_serving": "serving",
    "write_triton": "triton",
    "ray_application": "serve.ray_application",
    "Batching": "batching",
    "Limits": "serve.requests",
    "sensitivity": "layer_sensitivity",
    "Report": "report",
    "Evaluation": "evaluation",
    "Quantization": "quantization",
    "ArraySpec": "spec",
    "ExportSpec": "spec",
    "GenerationOptions": "language",
    "write_genai": "genai.write",
    "write_litertlm": "litertlm.write",
    "OnnxOptions": "onnx.options",
    "Probe": "spec",
    "Signature": "spec",
    "ExportError": "errors",
    "ParityError": "errors",
    "UnsupportedOpError": "errors",
    "ConversionError": "errors",
    "InvalidModelError": "errors",
    "InvalidBundleError": "errors",
    "InputError": "errors",
    "MissingLibraryError": "errors",
    "RunError": "errors",
    "UnknownFormatError": "errors",
    "QuantizationError": "errors",
    "OutOfSpaceError": "errors",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES, __all__)
