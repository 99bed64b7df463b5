from .api import (
    export as export,
)
from .compression.candidates import (
    Candidate as Candidate,
)
from .compression.compress import (
    compress as compress,
)
from .compression.layer_sensitivity import (
    sensitivity as sensitivity,
)
from .compression.results import (
    Compression as Compression,
)
from .data.array_spec import (
    ArraySpec as ArraySpec,
)
from .data.export_spec import (
    ExportSpec as ExportSpec,
)
from .data.export_spec import (
    Probe as Probe,
)
from .data.export_spec import (
    Signature as Signature,
)
from .data.report import (
    Report as Report,
)
from .data.report import (
    Reports as Reports,
)
from .data.target_result import (
    TargetResult as TargetResult,
)
from .engines.genai.model_directory import (
    write_genai as write_genai,
)
from .engines.litertlm.model_file import (
    write_litertlm as write_litertlm,
)
from .engines.mediapipe.model_file import (
    write_mediapipe as write_mediapipe,
)
from .engines.tensorflow_serving.version_directory import (
    write_serving as write_serving,
)
from .engines.transformers_js.model_folder import (
    write_transformers_js as write_transformers_js,
)
from .engines.triton.model_repository import (
    write_triton as write_triton,
)
from .errors import (
    ConversionError as ConversionError,
)
from .errors import (
    ExportError as ExportError,
)
from .errors import (
    InputError as InputError,
)
from .errors import (
    InvalidBundleError as InvalidBundleError,
)
from .errors import (
    InvalidModelError as InvalidModelError,
)
from .errors import (
    MissingLibraryError as MissingLibraryError,
)
from .errors import (
    NotDeterministicError as NotDeterministicError,
)
from .errors import (
    OptionsError as OptionsError,
)
from .errors import (
    OutOfSpaceError as OutOfSpaceError,
)
from .errors import (
    ParityError as ParityError,
)
from .errors import (
    QuantizationError as QuantizationError,
)
from .errors import (
    RunError as RunError,
)
from .errors import (
    TargetError as TargetError,
)
from .errors import (
    UnknownFormatError as UnknownFormatError,
)
from .errors import (
    UnknownInputError as UnknownInputError,
)
from .errors import (
    UnknownTargetError as UnknownTargetError,
)
from .errors import (
    UnsupportedOpError as UnsupportedOpError,
)
from .errors import (
    WeightError as WeightError,
)
from .loading.isolated.isolation import (
    Isolation as Isolation,
)
from .loading.load import (
    load as load,
)
from .onnx.options import (
    OnnxOptions as OnnxOptions,
)
from .onnx.required_operators import (
    required_operators as required_operators,
)
from .operations.table import (
    register_lowering as register_lowering,
)
from .options import (
    ExportOptions as ExportOptions,
)
from .quantization.options import (
    Float16 as Float16,
)
from .quantization.options import (
    FullInt8 as FullInt8,
)
from .quantization.options import (
    Gguf as Gguf,
)
from .quantization.options import (
    Int8 as Int8,
)
from .quantization.options import (
    Int8Static as Int8Static,
)
from .quantization.options import (
    Learned as Learned,
)
from .quantization.options import (
    Quantization as Quantization,
)
from .quantization.options import Ternary as Ternary
from .quantization.options import WeightInt4 as WeightInt4
from .quantization.options import WeightInt8 as WeightInt8
from .reporting.bench import (
    bench_bundle as bench_bundle,
)
from .serving.batching import (
    Batching as Batching,
)
from .serving.cluster.application import (
    ray_application as ray_application,
)
from .serving.cluster.server import (
    serve_with_ray as serve_with_ray,
)
from .serving.http_application import (
    http_application as http_application,
)
from .serving.requests import (
    Limits as Limits,
)
from .serving.server import (
    Access as Access,
)
from .serving.server import (
    run_server as run_server,
)
from .spec.language.spec import (
    GenerationOptions as GenerationOptions,
)
from .targets.microcontrollers.ethos_u import (
    EthosU as EthosU,
)
from .text.files.bytes_to_outputs import (
    write_text_tflite as write_text_tflite,
)
from .text.files.strings import (
    write_text_onnx as write_text_onnx,
)
from .text.files.write import (
    export_tokenizer as export_tokenizer,
)
from .training.trainer import (
    OnDeviceTrainer as OnDeviceTrainer,
)
from .training.write import (
    export_training as export_training,
)
from .verification.quantized.evaluation import (
    Evaluation as Evaluation,
)
from .verification.verify import (
    verify_bundle as verify_bundle,
)
from .writing.bundle_writer import (
    export_spec as export_spec,
)
from .writing.quantize_bundle import (
    quantize as quantize,
)
