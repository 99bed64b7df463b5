"""What a bundle holds, for a human: signatures, sizes, versions, and the ops of each format."""

import collections
import importlib.util
import pathlib

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.reporting.report import fixed_width, readable_size
from keras_transformer.export.spec.export_spec import ArraySpec
from keras_transformer.utils.captured_stderr import quiet


def inspect_bundle(directory):
    """Describes a bundle.

    Args:
        directory: path of the bundle.

    Returns:
        Several lines of text.

    Raises:
        InvalidBundleError: it is not a complete bundle.
    """
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory)
    lines = []
    for name, signature in manifest["signatures"].items():
        lines.append(f"signature {name}")
        for side in ("inputs", "outputs"):
            lines += [
                f"  {side[:-1]:7}{each['name']}: {ArraySpec.from_dict(each).describe()}" for each in signature[side]
            ]
    lines += ["", _artifact_table(directory, manifest), ""]
    lines += [*_op_lines(directory, manifest), *_delegate_lines(directory, manifest)]
    lines.append("written with " + ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()))
    lines += [f"metadata {key}: {_short(value)}" for key, value in manifest.get("metadata", {}).items()]
    return "\n".join(lines)


def op_counts(directory, manifest, format):
    """How often each op occurs in one artifact, over all its signatures.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        format: name of a format that the bundle has.

    Returns:
        A `collections.Counter` of op name to count.
    """
    counter = collections.Counter()
    for path in sorted(set(manifest["artifacts"][format]["signatures"].values())):
        counter.update(_COUNTERS[format](pathlib.Path(directory, path)))
    return counter


def _artifact_table(directory, manifest):
    rows = [("format", "size", "of scale", "ops", "most frequent ops")]
    for name, artifact in manifest["artifacts"].items():
        ratio = max((each["ratio"] for each in artifact.get("parity", ())), default=0.0)
        rows.append((name, readable_size(artifact["bytes"]), f"{ratio:.1e}", *_op_cells(directory, manifest, name)))
    return fixed_width(rows)


def _op_cells(directory, manifest, name):
    """The number of ops and the most frequent ones, where the library that reads them is installed."""
    try:
        counter = op_counts(directory, manifest, name)
    except ImportError as error:
        return "-", f"counting them needs {error.name}"
    return str(counter.total()), ", ".join(f"{op} {count}" for op, count in counter.most_common(4))


def _op_lines(directory, manifest):
    """The ops of each ONNX file, most frequent first."""
    files = sorted(set(manifest["artifacts"].get("onnx", {"signatures": {}})["signatures"].values()))
    if importlib.util.find_spec("onnx") is None:
        return
    for name in files:
        counter = collections.Counter(_onnx_ops(directory / name))
        yield f"{name}: " + ", ".join(f"{op} {count}" for op, count in counter.most_common())
    if files:
        yield ""


def _delegate_lines(directory, manifest):
    """What XNNPACK takes of the TFLite file, where LiteRT is installed."""
    files = sorted(set(manifest["artifacts"].get("tflite", {"signatures": {}})["signatures"].values()))
    if not files or importlib.util.find_spec("ai_edge_litert") is None:
        return
    from keras_transformer.export.tflite import inspection as tflite_inspection

    for name in files:
        yield from (str(row) for row in tflite_inspection.delegate_report(directory / name))
    yield ""


def _short(value, limit=80):
    text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _onnx_ops(path):
    import onnx

    from keras_transformer.export.onnx.rewrites.walk import all_nodes

    return (node.op_type for node in all_nodes(onnx.load(str(path), load_external_data=False).graph))


def _tflite_ops(path):
    from ai_edge_litert import schema_py_generated as schema

    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    for position in range(model.SubgraphsLength()):
        graph = model.Subgraphs(position)
        for index in range(graph.OperatorsLength()):
            code = codes[graph.Operators(index).OpcodeIndex()]
            yield names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]


def _saved_model_ops(path):
    with quiet():
        from tensorflow.core.protobuf import saved_model_pb2

        message = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for function in message.meta_graphs[0].graph_def.library.function:
        if "signature_wrapper" not in function.signature.name and "traced_" not in function.signature.name:
            yield from (node.op for node in function.node_def)


_COUNTERS = {"saved_model": _saved_model_ops, "tflite": _tflite_ops, "onnx": _onnx_ops}
