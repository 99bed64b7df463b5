"""Code that loads a bundle in Python, Kotlin and JavaScript, with the names of its signatures, inputs and outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import FileNames
from keras_transformer.export.reporting.array_code import ArrayCode, array_codes

# The helpers read the tokenizers of byte-level BPE only.
_PROMPT = "// token ids; bundle.tokenizer() encodes text, if it is byte-level BPE"
_LITERT_HEAD = """\
// com.google.ai.edge.litert:litert; the file is in a folder of the app
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel

"""
_ONNX_KOTLIN_HEAD = """\
// com.microsoft.onnxruntime:onnxruntime-android; the file is in a folder of the app
import ai.onnxruntime.*
import java.nio.*

"""
_TEXT_INPUTS = {"token_ids", "padding_mask", "segment_ids"}


def load_code(manifest: Manifest, folder: str, weights: Sequence[str] = ()) -> dict[str, str]:
    """Returns code by language; without the languages in which the bundle cannot be loaded in a few lines.

    Args:
        manifest: a bundle's manifest.
        folder: name of the folder of the bundle.
        weights: paths in the bundle of the weights that the ONNX files share.

    Example:

    >>> from keras_transformer.export.data.artifact_record import ArtifactRecord
    >>> from keras_transformer.export.data.manifest_records import SignatureRecord
    >>> x, y = (ArraySpec(name, "float32", (None, 4), ("batch", None)) for name in "xy")
    >>> artifacts = {"onnx": ArtifactRecord({"serve": "model.onnx"}, size=512)}
    >>> manifest = Manifest({"serve": SignatureRecord((x,), (y,))}, artifacts, tolerance=1e-5)
    >>> print(load_code(manifest, "bundle")["Python"])
    import numpy as np
    from keras_transformer.export import load
    <BLANKLINE>
    model = load("bundle")
    outputs = model({"x": np.zeros((1, 4), "float32")})
    print(outputs["y"])  # float32 (batch, 4)
    """
    if manifest.generation:
        return _language_code(manifest, folder)
    signature = "serve" if "serve" in manifest.signatures else next(iter(manifest.signatures))
    codes = {"Python": _python(manifest, folder, signature)}
    kotlin = _litert_kotlin(manifest, signature) or _onnx_kotlin(manifest, signature)
    javascript = _javascript(manifest, folder, signature, weights)
    return codes | ({"Kotlin": kotlin} if kotlin else {}) | ({"JavaScript": javascript} if javascript else {})


class _Call(NamedTuple):
    """One signature of one format: its file, its inputs as code, and its outputs."""

    file: str
    signature: str
    inputs: Sequence[ArrayCode]
    outputs: Sequence[ArraySpec]
    names: Mapping[str, str]  # Of the outputs in the file.

    @property
    def first_output(self) -> str:
        return self.names.get(self.outputs[0].name, self.outputs[0].name)


def _call(manifest: Manifest, format: str, signature: str) -> _Call | None:
    files = manifest.files_of(format)
    if signature not in files or signature in manifest.artifact(format).preprocessing:
        return None  # No file, or one that takes what preprocessing in front of it makes.
    specs, names = manifest.signature(signature), manifest.artifact(format).names.get(signature, FileNames({}, {}))
    inputs = array_codes(specs.inputs, names.inputs, manifest.axis_limits)
    return _Call(files[signature], signature, inputs, specs.outputs, names.outputs)


def _python(manifest: Manifest, folder: str, signature: str) -> str:
    specs = manifest.signature(signature)
    inputs = array_codes(specs.inputs, {}, manifest.axis_limits)
    head = "from keras_transformer.export import load\n\n"
    model = f"model = load({_text(folder)})\n"
    output = specs.outputs[0]
    result = f"print(outputs[{_text(output.name)}])  # {output.describe()}"
    if manifest.tokenizer is not None and {each.name for each in inputs} <= _TEXT_INPUTS:
        return f'{head}{model}outputs = model(["A text.", "Another one."])\n{result}'
    if any(each.python is None for each in inputs):
        return f"{head}{model}outputs = model(model.example())\n{result}"
    arrays = ", ".join(f"{_text(each.name)}: {each.python}" for each in inputs)
    return (
        f"import numpy as np\n{head}{model}{_lengths(inputs, '{name} = {size}')}outputs = model({{{arrays}}})\n{result}"
    )


def _litert_kotlin(manifest: Manifest, signature: str) -> str | None:
    """For LiteRT, which takes signatures of fixed shapes."""
    files = manifest.files_of("tflite")
    fixed = next((name for name in files if name.startswith(f"{signature}_") and _is_fixed(manifest, name)), None)
    call = _call(manifest, "tflite", fixed) if fixed else None
    if call is None or any(each.litert is None for each in call.inputs) or call.outputs[0].dtype != "float32":
        return None
    lines = [f"val model = CompiledModel.create({_kotlin_text(call.file)}, CompiledModel.Options(Accelerator.CPU))"]
    for each in call.inputs:
        lines.append(
            f"val {each.variable} = model.createInputBuffer({_kotlin_text(each.file_name)}, {_kotlin_text(call.signature)})"
        )
        lines.append(f"{each.variable}.{each.litert}")
    name = _kotlin_text(call.first_output)
    inputs = ", ".join(f"{_kotlin_text(each.file_name)} to {each.variable}" for each in call.inputs)
    lines += [
        f"val output = model.createOutputBuffer({name}, {_kotlin_text(call.signature)})",
        f"model.run(mapOf({inputs}), mapOf({name} to output), {_kotlin_text(call.signature)})",
        "val values = output.readFloat()",
    ]
    return _LITERT_HEAD + "\n".join(lines)


def _onnx_kotlin(manifest: Manifest, signature: str) -> str | None:
    call = _call(manifest, "onnx", signature)
    if call is None or any(each.onnx_kotlin is None for each in call.inputs) or call.outputs[0].dtype != "float32":
        return None
    lines = ["val environment = OrtEnvironment.getEnvironment()"]
    lines.append(f"val session = environment.createSession({_kotlin_text(call.file)}, OrtSession.SessionOptions())")
    lines += _lengths(call.inputs, "val {name} = {size}").splitlines()
    lines += [f"val {each.variable} = {each.onnx_kotlin}" for each in call.inputs]
    inputs = ", ".join(f"{_kotlin_text(each.file_name)} to {each.variable}" for each in call.inputs)
    lines.append(f"session.run(mapOf({inputs})).use {{ result ->")
    lines.append(f"    val values = (result.get(0) as OnnxTensor).floatBuffer  // {call.first_output}\n}}")
    return _ONNX_KOTLIN_HEAD + "\n".join(lines)


def _javascript(manifest: Manifest, folder: str, signature: str, weights: Sequence[str]) -> str | None:
    call = _call(manifest, "onnx", signature)
    if call is None or any(each.javascript is None for each in call.inputs):
        return None
    data = ", ".join(f"{{ path: {_text(name)}, data: {_text(f'{folder}/{name}')} }}" for name in weights)
    options = f", {{ externalData: [{data}] }}" if data else ""
    lines = [f"const session = await ort.InferenceSession.create({_text(f'{folder}/{call.file}')}{options});"]
    lines += _lengths(call.inputs, "const {name} = {size};").splitlines()
    lines += [f"const {each.variable} = {each.javascript};" for each in call.inputs]
    inputs = ", ".join(f"{_text(each.file_name)}: {each.variable}" for each in call.inputs)
    lines.append(f"const outputs = await session.run({{ {inputs} }});")
    lines.append(f"console.log(outputs[{_text(call.first_output)}].data);")
    return '// npm install onnxruntime-web\nimport * as ort from "onnxruntime-web";\n\n' + "\n".join(lines)


def _language_code(manifest: Manifest, folder: str) -> dict[str, str]:
    """For a language model: the loop that generates is in the package, and in `examples/deploy`."""
    model = f"from keras_transformer.export import load\n\nmodel = load({_text(folder)})\n"
    generation, has_text = manifest.generation or {}, manifest.tokenizer is not None
    if generation.get("source_shape") is not None:
        shape = ", ".join(str(size or 100) for size in generation["source_shape"])
        source = f'source = [np.zeros(({shape},), "float32")]  # One array for each example.'
        return {"Python": f"import numpy as np\n{model}{source}\nprint(model.generate(source, max_new_tokens=40))"}
    prompt = '"A text"' if has_text else "[5, 6, 7]"
    codes = {"Python": f"{model}print(model.generate({prompt}, max_new_tokens=40))"}
    if generation["is_encoder_decoder"]:
        return codes
    has_onnx = {"prefill", "decode"} <= manifest.files_of("onnx").keys()
    if {"prefill", "decode_1"} <= manifest.files_of("tflite").keys():
        codes["Kotlin"] = _decoder_kotlin("tflite", "LiteRt", folder)
    elif has_onnx:
        codes["Kotlin"] = _decoder_kotlin("onnx", "Onnx", folder)
    return codes | ({"JavaScript": _decoder_javascript(folder)} if has_onnx else {})


def _decoder_kotlin(format: str, runtime: str, folder: str) -> str:
    return (
        f"// With Bundle.kt, BytePair.kt and {runtime}.kt of examples/deploy/android/src/main/kotlin/app\n"
        f'val bundle = Bundle(File({_kotlin_text(folder)}), "{format}")\n'
        f"val prompt = listOf(5, 6, 7)  {_PROMPT}\n"
        f"{runtime}Decoder(bundle).use {{ decoder -> println(generate(bundle, decoder, prompt, 40)) }}"
    )


def _decoder_javascript(folder: str) -> str:
    return (
        "// With the files of examples/deploy/js_common; npm install onnxruntime-node\n"
        'import { readFile } from "node:fs/promises";\n'
        'import { InferenceSession, Tensor } from "onnxruntime-node";\n'
        'import { Bundle, generate } from "./js_common/bundle.js";\n'
        'import { OnnxDecoder } from "./js_common/onnx.js";\n\n'
        f'const read = (file) => readFile({_text(folder + "/")} + file, "utf8");\n'
        f"const open = (file) => InferenceSession.create({_text(folder + '/')} + file);\n"
        'const bundle = new Bundle(JSON.parse(await read("manifest.json")), "onnx", read);\n'
        f"const prompt = [5, 6, 7]; {_PROMPT}\n"
        "const decoder = (await OnnxDecoder.open(bundle, open, Tensor)).start(prompt, 40);\n"
        "for await (const id of generate(bundle, decoder, prompt, 40)) {\n  console.log(id);\n}"
    )


def _is_fixed(manifest: Manifest, signature: str) -> bool:
    return not any(axis for each in manifest.signature(signature).inputs for axis in each.axes)


def _lengths(inputs: Sequence[ArrayCode], template: str) -> str:
    """A line for each dynamic axis, with a size that the model takes."""
    sizes = {name: size for each in inputs for name, size in each.sizes.items()}
    return "".join(template.format(name=name, size=size) + "\n" for name, size in sizes.items())


def _text(value: str) -> str:
    """A string literal of Python and JavaScript."""
    return json.dumps(value, ensure_ascii=False)


def _kotlin_text(value: str) -> str:
    return _text(value).replace("$", "\\$")
