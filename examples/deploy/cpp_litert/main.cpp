// A classifier and a language model of keras_transformer in C++, on LiteRT's C interface.
//
//     classify BUNDLE IMAGE.pgm           prints the classes, the most likely first
//     generate BUNDLE "The prompt" 40     continues a text by 40 tokens
//
// Where the environment variable WEIGHT_CACHE names a folder, packed weights are written to a file in it, once; the program
// maps them from then on, which takes less memory and time. Otherwise they are packed in memory each time.
#if __has_include(<litert/c/litert_compiled_model.h>)
#include <litert/c/litert_compiled_model.h>
#include <litert/c/litert_environment.h>
#include <litert/c/litert_model.h>
#include <litert/c/litert_opaque_options.h>
#include <litert/c/litert_options.h>
#include <litert/c/litert_tensor_buffer.h>
#else
#include "litert_subset.h"
#endif

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "../cpp_common/bundle.h"

// kLiteRtHwAcceleratorGpu | kLiteRtHwAcceleratorCpu on a phone: what the GPU does not take runs on the CPU.
static const LiteRtHwAcceleratorSet kAccelerators = kLiteRtHwAcceleratorCpu;

static void check(LiteRtStatus status, const std::string& action) {
  if (status != kLiteRtStatusOk) throw std::runtime_error(action + ": LiteRT status " + std::to_string(status));
}

using Buffer = std::shared_ptr<LiteRtTensorBufferT>;

// Options of the CPU, as LiteRT reads them: lines of TOML.
static LiteRtOpaqueOptions cpu_options(const std::string& weights) {
  const std::string text = "num_threads = " + std::to_string(std::max(1u, std::thread::hardware_concurrency())) +
                           "\nweight_cache_file_path = \"" + weights + "\"\n";
  char* payload = static_cast<char*>(std::malloc(text.size() + 1));
  std::memcpy(payload, text.c_str(), text.size() + 1);
  LiteRtOpaqueOptions options = nullptr;
  check(LiteRtCreateOpaqueOptions("xnnpack", payload, std::free, &options), "options of the CPU");
  return options;
}

// A file, compiled for the accelerators.
class Model {
 public:
  explicit Model(const Signature& signature) {
    LiteRtEnvironment environment = nullptr;
    check(LiteRtCreateEnvironment(0, nullptr, &environment), "environment");
    environment_.reset(environment, LiteRtDestroyEnvironment);
    LiteRtModel model = nullptr;
    check(LiteRtCreateModelFromFile(environment, signature.file.c_str(), &model), signature.file);
    model_.reset(model, LiteRtDestroyModel);
    compile(packed_weights(signature.sha256));
  }

  LiteRtEnvironment environment() const { return environment_.get(); }
  LiteRtCompiledModel compiled() const { return compiled_.get(); }

  LiteRtParamIndex index_of(const std::string& signature) const {
    LiteRtParamIndex count = 0;
    check(LiteRtGetNumModelSignatures(model_.get(), &count), "signatures");
    for (LiteRtParamIndex index = 0; index < count; ++index) {
      const char* key = nullptr;
      check(LiteRtGetSignatureKey(signature_at(index), &key), "signatures");
      if (signature == key) return index;
    }
    throw std::runtime_error("the file has no signature " + signature);
  }

  // The names of the manifest in the order that a run takes, which is that of the file.
  std::vector<std::string> names(LiteRtParamIndex signature, const std::vector<Spec>& specs, bool of_inputs) const {
    const LiteRtSignature found = signature_at(signature);
    LiteRtParamIndex count = 0;
    check(of_inputs ? LiteRtGetNumSignatureInputs(found, &count) : LiteRtGetNumSignatureOutputs(found, &count), "names");
    std::vector<std::string> names;
    for (LiteRtParamIndex index = 0; index < count; ++index) {
      const char* name = nullptr;
      check(of_inputs ? LiteRtGetSignatureInputName(found, index, &name)
                      : LiteRtGetSignatureOutputName(found, index, &name), "names");
      const auto spec = std::find_if(specs.begin(), specs.end(), [name](const Spec& each) {
        return (each.name_in_file.empty() ? each.name : each.name_in_file) == name;
      });
      if (spec == specs.end()) throw std::runtime_error(std::string("the manifest has no tensor ") + name);
      names.push_back(spec->name);
    }
    return names;
  }

 private:
  std::shared_ptr<LiteRtEnvironmentT> environment_;
  std::shared_ptr<LiteRtModelT> model_;
  std::shared_ptr<LiteRtCompiledModelT> compiled_;

  void compile(const std::string& weights) {
    LiteRtOptions options = nullptr;
    check(LiteRtCreateOptions(&options), "options");
    const std::shared_ptr<LiteRtOptionsT> owned(options, LiteRtDestroyOptions);
    check(LiteRtSetOptionsHardwareAccelerators(options, kAccelerators), "accelerators");
    check(LiteRtAddOpaqueOptions(options, cpu_options(weights)), "options of the CPU");
    LiteRtCompiledModel compiled = nullptr;
    check(LiteRtCreateCompiledModel(environment_.get(), model_.get(), options, &compiled), "compiled model");
    compiled_.reset(compiled, LiteRtDestroyCompiledModel);
  }

  // The file of packed weights, which is written under another name first: a process that ends early leaves no part of it.
  std::string packed_weights(const std::string& sha256) {
    namespace fs = std::filesystem;
    const char* folder = std::getenv("WEIGHT_CACHE");
    if (folder == nullptr || sha256.empty()) return ":memory";
    const fs::path path = fs::path(folder) / (sha256.substr(0, 32) + ".xnnpack");
    std::error_code error;
    if (!fs::exists(path, error)) {
      const fs::path partial = fs::path(path).concat("." + std::to_string(std::random_device{}()) + ".partial");
      fs::create_directories(path.parent_path(), error);
      if (!std::ofstream(partial, std::ios::binary)) return ":memory";
      compile(partial.string());
      compiled_.reset();
      fs::rename(partial, path, error);
      if (error) return ":memory";
    }
    return path.string();
  }

  LiteRtSignature signature_at(LiteRtParamIndex index) const {
    LiteRtSignature signature = nullptr;
    check(LiteRtGetModelSignature(model_.get(), index, &signature), "signature");
    return signature;
  }
};

// One signature of a file for one row, with its buffers. Its other dynamic axes must be fixed.
class Runner {
 public:
  const Signature signature;
  std::map<std::string, Buffer> inputs, outputs;  // By the names of the manifest.

  Runner(const Model& model, const Signature& of) : signature(of), model_(model), index_(model.index_of(of.name)) {
    input_names_ = model.names(index_, of.inputs, true);
    output_names_ = model.names(index_, of.outputs, false);
    resize_inputs();
    for (size_t place = 0; place < input_names_.size(); ++place) {
      LiteRtTensorBufferRequirements needs = nullptr;
      check(LiteRtGetCompiledModelInputBufferRequirements(model.compiled(), index_, place, &needs), "input");
      inputs[input_names_[place]] = buffer(signature.input(input_names_[place]), needs);
    }
    for (size_t place = 0; place < output_names_.size(); ++place) {
      LiteRtTensorBufferRequirements needs = nullptr;
      check(LiteRtGetCompiledModelOutputBufferRequirements(model.compiled(), index_, place, &needs), "output");
      outputs[output_names_[place]] = buffer(signature.output(output_names_[place]), needs);
    }
  }

  void run() {
    std::vector<LiteRtTensorBuffer> given, results;
    for (const std::string& name : input_names_) given.push_back(inputs.at(name).get());
    for (const std::string& name : output_names_) results.push_back(outputs.at(name).get());
    check(LiteRtRunCompiledModel(model_.compiled(), index_, given.size(), given.data(), results.size(), results.data()),
          signature.name);
  }

  // Writes values, and zeros behind them.
  void write(const std::string& name, const void* data, size_t bytes) {
    void* memory = nullptr;
    check(LiteRtLockTensorBuffer(inputs.at(name).get(), &memory, kLiteRtTensorBufferLockModeWrite), name);
    const Spec& spec = signature.input(name);
    if (bytes > 0) std::memcpy(memory, data, bytes);
    std::memset(static_cast<char*>(memory) + bytes, 0, elements(row(spec)) * type_of(spec).bytes - bytes);
    check(LiteRtUnlockTensorBuffer(inputs.at(name).get()), name);
  }

  std::vector<float> read(const std::string& name) const {
    void* memory = nullptr;
    check(LiteRtLockTensorBuffer(outputs.at(name).get(), &memory, kLiteRtTensorBufferLockModeRead), name);
    const float* first = static_cast<const float*>(memory);
    const std::vector<float> found(first, first + elements(row(signature.output(name))));
    check(LiteRtUnlockTensorBuffer(outputs.at(name).get()), name);
    return found;
  }

  static std::vector<int> row(const Spec& spec) { return shape_of(spec, {{"batch", 1}}); }

 private:
  struct Type {
    LiteRtElementType type;
    size_t bytes;
  };

  const Model& model_;
  LiteRtParamIndex index_;
  std::vector<std::string> input_names_, output_names_;

  static Type type_of(const Spec& spec) {
    static const std::map<std::string, Type> types = {{"float32", {kLiteRtElementTypeFloat32, 4}},
                                                      {"float16", {kLiteRtElementTypeFloat16, 2}},
                                                      {"int32", {kLiteRtElementTypeInt32, 4}},
                                                      {"int8", {kLiteRtElementTypeInt8, 1}}};
    return types.at(spec.dtype);
  }

  // Dynamic axes get the size of one row.
  void resize_inputs() {
    bool is_resized = false;
    for (size_t place = 0; place < input_names_.size(); ++place) {
      const Spec& spec = signature.input(input_names_[place]);
      if (std::find(spec.shape.begin(), spec.shape.end(), -1) == spec.shape.end()) continue;
      const std::vector<int> shape = row(spec);
      check(LiteRtCompiledModelResizeInputTensor(model_.compiled(), index_, place, shape.data(), shape.size()), spec.name);
      is_resized = true;
    }
    std::vector<LiteRtLayout> layouts(output_names_.size());
    if (is_resized) {
      check(LiteRtGetCompiledModelOutputTensorLayouts(model_.compiled(), index_, layouts.size(), layouts.data(), true),
            signature.name);
    }
  }

  Buffer buffer(const Spec& spec, LiteRtTensorBufferRequirements needs) const {
    const std::vector<int> shape = row(spec);
    LiteRtRankedTensorType type{};
    type.element_type = type_of(spec).type;
    type.layout.rank = static_cast<unsigned>(shape.size());
    std::copy(shape.begin(), shape.end(), type.layout.dimensions);
    LiteRtTensorBuffer made = nullptr;
    check(LiteRtCreateManagedTensorBufferFromRequirements(model_.environment(), &type, needs, &made), spec.name);
    return Buffer(made, LiteRtDestroyTensorBuffer);
  }
};

// The signatures of fixed shapes: `prefill_32`, `prefill_128`, ... read prompts, and `decode_1` one token.
class LiteRtDecoder : public Decoder {
 public:
  explicit LiteRtDecoder(const Bundle& bundle)
      : bundle_(bundle), step_signature_(bundle.signature("decode_1")), model_(step_signature_),
        step_(model_, step_signature_) {
    for (const Spec& spec : step_signature_.cache()) step_.write(spec.name, nullptr, 0);
  }

  // Slots of the cache.
  int length() const {
    for (const Spec& spec : bundle_.signature("prefill").cache()) {
      for (size_t axis = 0; axis < spec.axes.size(); ++axis) {
        if (spec.axes[axis] == "cache_length") return step_signature_.input(spec.name).shape[axis];
      }
    }
    return std::numeric_limits<int>::max();
  }

  // Reads as much as the smallest signature that holds the prompt, or the largest, takes; further tokens in chunks and one
  // by one.
  std::vector<float> prefill(const std::vector<int32_t>& ids) override {
    const int count = static_cast<int>(ids.size());
    int size = 0;
    for (const std::string& name : bundle_.signatures()) {
      const bool is_prefill = name.rfind("prefill_", 0) == 0;
      const int here = is_prefill ? std::stoi(name.substr(8)) : 0;
      if (here > 0 && (size == 0 || (size < count ? here > size : here >= count && here < size))) size = here;
    }
    const int first = std::min(size, count);
    std::vector<float> logits;
    if (size > 0) {
      Runner reader(model_, bundle_.signature("prefill_" + std::to_string(size)));
      reader.write("token_ids", ids.data(), sizeof(int32_t) * static_cast<size_t>(first));
      logits = step(reader, "lengths", first);
    }
    int index = first;
    for (const std::string& name : bundle_.signatures()) {
      const int chunk = name.rfind("extend_", 0) == 0 ? std::stoi(name.substr(7)) : 0;
      if (chunk == 0 || index + chunk > count) continue;
      Runner reader(model_, bundle_.signature(name));
      for (; index + chunk <= count; index += chunk) {
        reader.write("token_ids", &ids[static_cast<size_t>(index)], sizeof(int32_t) * static_cast<size_t>(chunk));
        logits = step(reader, "cache_index", index);
      }
    }
    for (; index < count; ++index) logits = decode(ids[static_cast<size_t>(index)], index);
    // A chunk has the logits after each of its tokens.
    const size_t words = elements(Runner::row(step_signature_.output("logits")));
    return std::vector<float>(logits.end() - static_cast<std::ptrdiff_t>(words), logits.end());
  }

  std::vector<float> decode(int32_t id, int32_t cache_index) override {
    step_.write("token_ids", &id, sizeof id);
    return step(step_, "cache_index", cache_index);
  }

 private:
  const Bundle& bundle_;
  const Signature step_signature_;
  // As the signature of dynamic shapes tells them: its axes have names.
  const std::vector<Spec> cache_ = bundle_.signature("prefill").cache();
  Model model_;
  Runner step_;

  // Slots of keys and values are written in place. A state changes hands: what a run wrote is what the next run reads.
  std::vector<float> step(Runner& runner, const char* index_name, int32_t index) {
    runner.write(index_name, &index, sizeof index);
    for (const Spec& spec : cache_) {
      runner.inputs[spec.name] = step_.inputs[spec.name];
      if (in_place(spec)) runner.outputs[spec.name] = step_.inputs[spec.name];
    }
    runner.run();
    for (const Spec& spec : cache_) {
      if (!in_place(spec)) std::swap(step_.inputs[spec.name], runner.outputs[spec.name]);
    }
    return runner.read("logits");
  }

  static bool in_place(const Spec& spec) {
    return std::find(spec.axes.begin(), spec.axes.end(), "cache_length") != spec.axes.end();
  }
};

static void classify(const std::string& folder, const std::string& image) {
  const Bundle bundle(folder, "tflite");
  // A signature of fixed shapes where the bundle has one, from `export(..., options=ExportOptions(static={"batch": 1}))`.
  const Signature signature = bundle.signature(bundle.has("serve_1") ? "serve_1" : "serve");
  const Model model(signature);
  Runner runner(model, signature);
  const Spec& input = signature.inputs.at(0);
  const std::vector<float> pixels = read_image(image, Runner::row(input));
  runner.write(input.name, pixels.data(), pixels.size() * sizeof(float));
  runner.run();
  print_classes(bundle, runner.read("probabilities"));
}

static void write(const std::string& folder, const std::string& text, int count) {
  const Bundle bundle(folder, "tflite");
  const BytePair tokenizer = bundle.tokenizer();
  const std::vector<int32_t> prompt = tokenizer.encode(text);
  LiteRtDecoder decoder(bundle);
  const int length = std::min(cache_length(bundle, prompt.size(), count), decoder.length());
  print_text(tokenizer, generate(bundle, decoder, prompt, length));
}

int main(int argc, char** argv) { return run(argc, argv, classify, write); }
