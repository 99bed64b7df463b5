// A classifier and a language model of keras_transformer in C++, on ONNX Runtime's C interface.
//
//     classify BUNDLE IMAGE.pgm           prints the classes, the most likely first
//     generate BUNDLE "The prompt" 40     continues a text by 40 tokens
#if __has_include(<onnxruntime_c_api.h>)
#include <onnxruntime_c_api.h>
#else
#include "onnxruntime_subset.h"
#endif

#include <cstring>
#include <memory>

#include "../cpp_common/bundle.h"

static const OrtApi* const ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);

static void check(OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = ort->GetErrorMessage(status);
  ort->ReleaseStatus(status);
  throw std::runtime_error(message);
}

// Values and sessions, released with their last owner.
using Value = std::shared_ptr<OrtValue>;

static OrtAllocator* allocator() {
  OrtAllocator* found = nullptr;
  check(ort->GetAllocatorWithDefaultOptions(&found));
  return found;
}

static OrtEnv* environment() {
  static const std::shared_ptr<OrtEnv> made = [] {
    OrtEnv* env = nullptr;
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "keras_transformer", &env));
    return std::shared_ptr<OrtEnv>(env, ort->ReleaseEnv);
  }();
  return made.get();
}

// A tensor of zeros, or of the values in `data`.
static Value tensor(const Spec& spec, const std::vector<int>& shape, const void* data = nullptr) {
  struct Type {
    ONNXTensorElementDataType type;
    size_t bytes;
  };
  static const std::map<std::string, Type> types = {{"float32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4}},
                                                    {"float16", {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2}},
                                                    {"int32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4}},
                                                    {"int8", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1}}};
  const std::vector<int64_t> sizes(shape.begin(), shape.end());
  OrtValue* value = nullptr;
  check(ort->CreateTensorAsOrtValue(allocator(), sizes.data(), sizes.size(), types.at(spec.dtype).type, &value));
  const Value owned(value, ort->ReleaseValue);
  void* content = nullptr;
  check(ort->GetTensorMutableData(value, &content));
  const size_t bytes = elements(shape) * types.at(spec.dtype).bytes;
  if (data != nullptr) {
    std::memcpy(content, data, bytes);
  } else {
    std::memset(content, 0, bytes);
  }
  return owned;
}

static std::vector<float> floats(const Value& value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(ort->GetTensorTypeAndShape(value.get(), &info));
  size_t count = 0;
  OrtStatus* status = ort->GetTensorShapeElementCount(info, &count);
  ort->ReleaseTensorTypeAndShapeInfo(info);
  check(status);
  void* content = nullptr;
  check(ort->GetTensorMutableData(value.get(), &content));
  const float* first = static_cast<const float*>(content);
  return {first, first + count};
}

// One signature of a bundle, which has an ONNX file of its own.
class Session {
 public:
  const Signature signature;

  explicit Session(const Signature& of) : signature(of) {
    OrtSessionOptions* options = nullptr;
    check(ort->CreateSessionOptions(&options));
    const std::shared_ptr<OrtSessionOptions> owned(options, ort->ReleaseSessionOptions);
    check(ort->SetIntraOpNumThreads(options, 2));
    OrtSession* session = nullptr;
    check(ort->CreateSession(environment(), of.file.c_str(), options, &session));
    session_ = std::shared_ptr<OrtSession>(session, ort->ReleaseSession);
    for (size_t index = 0; index < of.outputs.size(); ++index) outputs_.push_back(output_name(index));
  }

  // Inputs and outputs by the names of the manifest.
  std::map<std::string, Value> run(const std::map<std::string, Value>& inputs) const {
    std::vector<const char*> names, wanted;
    std::vector<const OrtValue*> values;
    for (const Spec& spec : signature.inputs) {
      names.push_back(spec.name_in_file.empty() ? spec.name.c_str() : spec.name_in_file.c_str());
      values.push_back(inputs.at(spec.name).get());
    }
    for (const std::string& name : outputs_) wanted.push_back(name.c_str());
    std::vector<OrtValue*> results(outputs_.size(), nullptr);
    check(ort->Run(session_.get(), nullptr, names.data(), values.data(), values.size(), wanted.data(), wanted.size(),
                   results.data()));
    std::map<std::string, Value> found;
    for (size_t index = 0; index < results.size(); ++index) {
      found[signature.outputs[index].name] = Value(results[index], ort->ReleaseValue);
    }
    return found;
  }

 private:
  std::shared_ptr<OrtSession> session_;
  std::vector<std::string> outputs_;

  // The name in the file. Where the manifest does not tell: a file has the outputs in the order of the manifest.
  std::string output_name(size_t index) const {
    if (!signature.outputs[index].name_in_file.empty()) return signature.outputs[index].name_in_file;
    char* name = nullptr;
    check(ort->SessionGetOutputName(session_.get(), index, allocator(), &name));
    const std::string found = name;
    allocator()->Free(allocator(), name);
    return found;
  }
};

class OnnxDecoder : public Decoder {
 public:
  OnnxDecoder(const Bundle& bundle, int length)
      : prefill_(bundle.signature("prefill")),
        step_(bundle.signature(bundle.has("decode_token") ? "decode_token" : "decode")) {
    for (const Spec& spec : step_.signature.cache()) {
      cache_[spec.name] = tensor(spec, shape_of(spec, {{"batch", 1}, {"cache_length", length}}));
    }
  }

  std::vector<float> prefill(const std::vector<int32_t>& ids) override {
    return read(prefill_, "lengths", ids, static_cast<int32_t>(ids.size()));
  }

  std::vector<float> decode(int32_t id, int32_t cache_index) override {
    return read(step_, "cache_index", {id}, cache_index);
  }

 private:
  Session prefill_, step_;
  std::map<std::string, Value> cache_;

  std::vector<float> read(const Session& session, const char* index_name, const std::vector<int32_t>& ids, int32_t index) {
    std::map<std::string, Value> inputs = cache_;
    const int count = static_cast<int>(ids.size());
    inputs["token_ids"] = tensor(session.signature.input("token_ids"), {1, count}, ids.data());
    inputs[index_name] = tensor(session.signature.input(index_name), {1}, &index);
    const std::map<std::string, Value> outputs = session.run(inputs);
    for (auto& [name, value] : cache_) value = outputs.at(name);
    return floats(outputs.at("logits"));
  }
};

static void classify(const std::string& folder, const std::string& image) {
  const Bundle bundle(folder, "onnx");
  const Session session(bundle.signature("serve"));
  const Spec& input = session.signature.inputs.at(0);
  const std::vector<int> shape = shape_of(input, {{"batch", 1}});
  const auto outputs = session.run({{input.name, tensor(input, shape, read_image(image, shape).data())}});
  print_classes(bundle, floats(outputs.at(session.signature.output("probabilities").name)));
}

static void write(const std::string& folder, const std::string& text, int count) {
  const Bundle bundle(folder, "onnx");
  const BytePair tokenizer = bundle.tokenizer();
  const std::vector<int32_t> prompt = tokenizer.encode(text);
  const int length = cache_length(bundle, prompt.size(), count);
  OnnxDecoder decoder(bundle, length);
  print_text(tokenizer, generate(bundle, decoder, prompt, length));
}

int main(int argc, char** argv) { return run(argc, argv, classify, write); }
