"""One engine that generates text, in a process of its own, for `real_llm.py`.

    python llm_worker.py ENGINE PATH THREADS LENGTH [LIBRARY_FOLDER]

The process loads a model, reads a first prompt, then takes a task from each line of its input and writes seconds and tokens.
An engine needs two functions: `start(tokens, room)` reads a text from its beginning, with room for so many more tokens, and
`more(tokens)` reads further tokens; both return the most likely next token. One that cannot go on with a text has
`whole(prompt, new)` instead. All are greedy, and none ends at an end token.
"""

import ctypes
import importlib.metadata
import json
import pathlib
import sys
import time

import numpy as np


class KerasTransformer:
    """A bundle of this project in one of its runtimes: `onnx` or `tflite`."""

    package = None  # The table has it.

    def __init__(self, path, threads, length, backend="onnx"):
        from keras_transformer.export import load

        self._steps = load(path, backend, num_threads=threads).steps

    def start(self, tokens, room):
        self._cache, self._read = self._steps.init_cache(1, len(tokens) + room), len(tokens)
        output, self._cache = self._steps.prefill(np.array([tokens]), np.array([len(tokens)]), self._cache)
        return int(output.logits[0, -1].argmax())

    def more(self, tokens):
        output, self._cache = self._steps.decode_step(np.array([tokens]), self._cache, np.array([self._read]))
        self._read += len(tokens)
        return int(output.logits[0, -1].argmax())


class KerasTransformerTFLite(KerasTransformer):
    """The same in LiteRT."""

    def __init__(self, path, threads, length):
        super().__init__(path, threads, length, "tflite")


class KerasTransformerSavedModel(KerasTransformer):
    """The same in TensorFlow."""

    def __init__(self, path, threads, length):
        super().__init__(path, threads, length, "saved_model")


class KerasTransformerLookup:
    """A bundle in ONNX Runtime that proposes tokens from the text itself and reads them at once."""

    package = None

    def __init__(self, path, threads, length):
        from keras_transformer.export import load
        from keras_transformer.generation import Generator, PromptLookup, Speculative

        # No token ends a text.
        self._generator = Generator(load(path, "onnx", num_threads=threads).steps, end_id=())
        self._sampler = Speculative(PromptLookup(), num_draft_tokens=7)

    def whole(self, prompt, new):
        return self._generator.generate([prompt], max_new_tokens=new, sampler=self._sampler)[0]


class KerasTransformerHead(KerasTransformerLookup):
    """A bundle in ONNX Runtime with a draft head; the path is that of the bundle, a colon, and that of the head."""

    def __init__(self, path, threads, length):
        from keras_transformer.generation import DraftHead, Speculative

        bundle, _, head = path.rpartition(":")
        super().__init__(bundle, threads, length)
        self._sampler = Speculative(DraftHead.load(head), num_draft_tokens=4)


class KerasModel:
    """A checkpoint's folder as a Keras model, with the decoding of the library."""

    package = None

    def __init__(self, path, threads, length):
        from keras_transformer import checkpoints

        self._model = checkpoints.from_huggingface(path, verbose=0)

    def whole(self, prompt, new):
        self._model.end_id = ()
        return self._model.generate([prompt], max_new_tokens=new)[0]


class LlamaCpp:
    """llama.cpp by its C functions, from the folder of libraries in npm's `@node-llama-cpp/linux-x64`."""

    package = None
    # Structs of parameters are passed through unseen, but for these places, counted in 32 bits.
    _LENGTH, _BATCH, _THREADS = 0, 1, (7, 8)
    _CACHE_TYPES = (26, 27)  # 0 is float32, 1 float16.
    _DEFAULTS = {0: 512, 1: 2048, 7: 4, 8: 4, 26: 1, 27: 1}
    cache_type = 1

    class _Parameters(ctypes.Structure):
        _fields_ = [("words", ctypes.c_int32 * 128)]

    class _Batch(ctypes.Structure):
        _fields_ = [("count", ctypes.c_int32), *((name, ctypes.c_void_p) for name in "abcdef")]

    def __init__(self, path, threads, length, folder):
        self._library = self._loaded(pathlib.Path(folder))
        model = self._library.llama_model_load_from_file(path.encode(), self._library.llama_model_default_params())
        parameters = self._library.llama_context_default_params()
        if any(parameters.words[place] != value for place, value in self._DEFAULTS.items()):
            raise RuntimeError("this release of llama.cpp has other parameters")
        parameters.words[self._LENGTH] = length
        for place in self._THREADS:
            parameters.words[place] = threads
        for place in self._CACHE_TYPES:
            parameters.words[place] = self.cache_type
        self._context = self._library.llama_init_from_model(model, parameters)
        self._memory = self._library.llama_get_memory(self._context)
        self._words = self._library.llama_vocab_n_tokens(self._library.llama_model_get_vocab(model))

    def _loaded(self, folder):
        """The library, which prints nothing, with the types of its functions."""
        for name in ("libggml-base", "libggml", "libllama"):
            library = ctypes.CDLL(str(min(folder.glob(f"{name}.*"))), mode=ctypes.RTLD_GLOBAL)
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        pointer, parameters = ctypes.c_void_p, self._Parameters
        for name, result, *given in (
            ("llama_log_set", None, type(self._quiet), pointer),
            ("ggml_backend_load_all_from_path", None, ctypes.c_char_p),
            ("llama_model_default_params", parameters),
            ("llama_context_default_params", parameters),
            ("llama_model_load_from_file", pointer, ctypes.c_char_p, parameters),
            ("llama_init_from_model", pointer, pointer, parameters),
            ("llama_model_get_vocab", pointer, pointer),
            ("llama_vocab_n_tokens", ctypes.c_int32, pointer),
            ("llama_get_memory", pointer, pointer),
            ("llama_memory_clear", None, pointer, ctypes.c_bool),
            ("llama_batch_get_one", self._Batch, pointer, ctypes.c_int32),
            ("llama_decode", ctypes.c_int32, pointer, self._Batch),
            ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), pointer, ctypes.c_int32),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, given
        library.llama_log_set(self._quiet, None)
        library.ggml_backend_load_all_from_path(str(folder).encode())
        return library

    def start(self, tokens, room):
        self._library.llama_memory_clear(self._memory, True)
        return self.more(tokens)

    def more(self, tokens):
        for first in range(0, len(tokens), self._DEFAULTS[self._BATCH]):
            part = np.array(tokens[first : first + self._DEFAULTS[self._BATCH]], "int32")
            batch = self._library.llama_batch_get_one(part.ctypes.data, len(part))
            if self._library.llama_decode(self._context, batch):
                raise RuntimeError("llama_decode failed")
        logits = self._library.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._words,)).argmax())


class LlamaCppFloat32(LlamaCpp):
    """The same with a cache in float32."""

    cache_type = 0


class Genai:
    """onnxruntime-genai on a folder of its own."""

    package = "onnxruntime-genai"

    def __init__(self, path, threads, length):
        import onnxruntime_genai

        self._engine, self._length = onnxruntime_genai, length
        config = onnxruntime_genai.Config(path)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self._model = onnxruntime_genai.Model(config)

    def start(self, tokens, room):
        parameters = self._engine.GeneratorParams(self._model)
        # No end token before that length.
        parameters.set_search_options(max_length=self._length, min_length=self._length, do_sample=False)
        self._generator, self._read, self._own = self._engine.Generator(self._model, parameters), 0, None
        return self.more(tokens)

    def more(self, tokens):
        # The engine appends the token that it chose.
        if list(tokens) != [self._own]:
            if self._read:
                self._generator.rewind_to(self._read)
            self._generator.append_tokens(np.array([tokens], "int32"))
        self._generator.generate_next_token()
        self._read, self._own = self._read + len(tokens), int(self._generator.get_next_tokens()[0])
        return self._own


class OpenVino:
    """openvino-genai on a GGUF file or a folder of its own."""

    package = "openvino-genai"

    def __init__(self, path, threads, length):
        import openvino
        import openvino_genai

        self._openvino, self._engine = openvino, openvino_genai
        self._pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)

    def whole(self, prompt, new):
        config = self._engine.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = new, False, True
        ids = self._openvino.Tensor(np.array([prompt], "int64"))
        mask = self._openvino.Tensor(np.ones((1, len(prompt)), "int64"))
        return list(self._pipeline.generate(self._engine.TokenizedInputs(ids, mask), config).tokens[0])


class CTranslate2:
    """CTranslate2 on a folder that its converter wrote."""

    package = "ctranslate2"

    def __init__(self, path, threads, length):
        import ctranslate2

        self._generator = ctranslate2.Generator(path, device="cpu", inter_threads=1, intra_threads=threads)
        self._words = json.loads(pathlib.Path(path, "vocabulary.json").read_text())

    def whole(self, prompt, new):
        words = [[self._words[each] for each in prompt]]
        options = {"max_length": new, "min_length": new, "sampling_topk": 1, "include_prompt_in_result": False}
        return self._generator.generate_batch(words, **options)[0].sequences_ids[0]


ENGINES = {
    "onnx": KerasTransformer,
    "tflite": KerasTransformerTFLite,
    "saved_model": KerasTransformerSavedModel,
    "onnx-lookup": KerasTransformerLookup,
    "onnx-head": KerasTransformerHead,
    "keras": KerasModel,
    "llama.cpp": LlamaCpp,
    "llama.cpp-float32": LlamaCppFloat32,
    "genai": Genai,
    "openvino": OpenVino,
    "ctranslate2": CTranslate2,
}


def generate(engine, prompt, new):
    """Generates tokens after a prompt."""
    if hasattr(engine, "whole"):
        return engine.whole(prompt, new)
    tokens = [engine.start(prompt, new)]
    while len(tokens) < new:
        tokens.append(engine.more(tokens[-1:]))
    return tokens


def run(engine, task):
    """Does one task; returns seconds and tokens, or an error."""
    if task["kept"] and hasattr(engine, "whole"):
        return {"error": "keeps no text"}
    if task["kept"]:
        engine.start(task["kept"], len(task["prompt"]))
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = [engine.more(task["prompt"])] if task["kept"] else generate(engine, task["prompt"], task["new"])
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "tokens": [int(each) for each in tokens],
        "memory": peak_memory(),
    }


def peak_memory():
    """The most memory of this process in GB, with what it maps from files; Linux. (`getrusage` counts the parent's too.)"""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1e6


def main():
    name, path, threads, length, *library = sys.argv[1:]
    kind, start = ENGINES[name], time.perf_counter()
    engine = kind(path, int(threads), int(length), *library)
    generate(engine, list(range(16, 48)), 1)
    version = importlib.metadata.version(kind.package) if kind.package else ""
    print(json.dumps({"load": time.perf_counter() - start, "version": version}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(engine, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
