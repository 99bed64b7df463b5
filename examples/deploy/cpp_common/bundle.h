// What a bundle's manifest says of its files, and what both C++ recipes share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "byte_pair.h"
#include "json.h"

// A tensor of a signature, as the manifest describes it.
struct Spec {
  std::string name, dtype;
  std::vector<int> shape;         // -1 where dynamic.
  std::vector<std::string> axes;  // Names of the dynamic axes; "" for the fixed ones.
  std::string name_in_file;       // "" where the manifest, of an earlier version, does not tell.
};

struct Signature {
  std::string name, file;
  std::vector<Spec> inputs, outputs;
  std::string sha256;  // Of the file.

  const Spec& input(const std::string& wanted) const { return find(inputs, wanted); }
  const Spec& output(const std::string& wanted) const { return find(outputs, wanted); }

  // The tensors of the cache: what a step takes and gives back under one name.
  std::vector<Spec> cache() const {
    std::vector<Spec> found;
    for (const Spec& input : inputs) {
      for (const Spec& output : outputs) {
        if (input.name == output.name) found.push_back(input);
      }
    }
    return found;
  }

 private:
  static const Spec& find(const std::vector<Spec>& specs, const std::string& wanted) {
    for (const Spec& spec : specs) {
      if (spec.name == wanted) return spec;
    }
    throw std::runtime_error("the signature has no tensor " + wanted);
  }
};

class Bundle {
 public:
  Json manifest;

  // `format` is "onnx" or "tflite".
  Bundle(const std::string& folder, const std::string& format)
      : manifest(Json::read(folder + "/manifest.json")), folder_(folder), format_(format) {}

  std::vector<std::string> signatures() const {
    std::vector<std::string> names;
    for (const auto& item : files().items) names.push_back(item.first);
    return names;
  }

  bool has(const std::string& signature) const { return !files().get(signature).is_null(); }

  Signature signature(const std::string& name) const {
    const Json& record = manifest["signatures"][name];
    const Json& names = manifest["artifacts"][format_].get("names").get(name);
    const std::string& file = files()[name].text;
    return {name, folder_ + "/" + file, specs(record["inputs"], names.get("inputs")),
            specs(record["outputs"], names.get("outputs")), manifest["files"].get(file).get("sha256").text};
  }

  BytePair tokenizer() const { return BytePair(folder_ + "/" + manifest["tokenizer"]["path"].text); }

  // The name of a class, or its number where the bundle was exported without `metadata={"class_names": [...]}`.
  std::string class_name(size_t index) const {
    const Json& names = manifest["metadata"].get("class_names");
    return index < names.list.size() ? names.list[index].text : std::to_string(index);
  }

 private:
  std::string folder_, format_;

  const Json& files() const { return manifest["artifacts"][format_]["signatures"]; }

  static std::vector<Spec> specs(const Json& records, const Json& names) {
    std::vector<Spec> found;
    for (const Json& record : records.list) {
      Spec spec{record["name"].text, record["dtype"].text, {}, {}, names.get(record["name"].text).text};
      for (const Json& size : record["shape"].list) spec.shape.push_back(size.is_null() ? -1 : size.integer());
      for (const Json& axis : record["axes"].list) spec.axes.push_back(axis.text);
      found.push_back(spec);
    }
    return found;
  }
};

// The shape of a tensor with the sizes of its dynamic axes.
inline std::vector<int> shape_of(const Spec& spec, const std::map<std::string, int>& sizes) {
  std::vector<int> shape = spec.shape;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] < 0) shape[axis] = sizes.at(spec.axes[axis]);
  }
  return shape;
}

inline size_t elements(const std::vector<int>& shape) {
  size_t count = 1;
  for (int size : shape) count *= static_cast<size_t>(size);
  return count;
}

// Reads a binary PGM or PPM image into pixels from 0 to 255; its size must be that of the model's input (1, H, W, C).
inline std::vector<float> read_image(const std::string& path, const std::vector<int>& shape) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int width = 0, height = 0, most = 0;
  file >> kind >> width >> height >> most;
  file.get();
  const int channels = kind == "P5" ? 1 : kind == "P6" ? 3 : 0;
  if (!file || channels == 0 || most != 255) throw std::runtime_error(path + ": not a PGM or PPM image of 8 bits");
  if (shape != std::vector<int>{1, height, width, channels}) {
    throw std::runtime_error(path + ": " + std::to_string(width) + "x" + std::to_string(height) + "x" +
                             std::to_string(channels) + " is not the size that the model takes");
  }
  std::string bytes(elements(shape), '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) throw std::runtime_error(path + ": cut off");
  std::vector<float> pixels;
  for (unsigned char byte : bytes) pixels.push_back(byte);
  return pixels;
}

// Prints the classes, the most likely first.
inline void print_classes(const Bundle& bundle, const std::vector<float>& probabilities) {
  std::vector<size_t> order(probabilities.size());
  for (size_t index = 0; index < order.size(); ++index) order[index] = index;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
  for (size_t index : order) std::cout << bundle.class_name(index) << ' ' << probabilities[index] << '\n';
}

// What a recipe implements for its runtime: both return the logits after the last token that was read.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::vector<float> prefill(const std::vector<int32_t>& ids) = 0;
  virtual std::vector<float> decode(int32_t id, int32_t cache_index) = 0;
};

inline bool is_end(const Json& generation, int32_t id) {
  const Json& end = generation.get("end_id");
  if (end.kind == Json::kNumber) return end.integer() == id;
  return std::any_of(end.list.begin(), end.list.end(), [id](const Json& each) { return each.integer() == id; });
}

// The most tokens that a prompt and its continuation may have together.
inline int cache_length(const Bundle& bundle, size_t prompt, int count) {
  const Json& most = bundle.manifest["generation"].get("max_length");
  const int wanted = static_cast<int>(prompt) + count;
  return most.is_null() ? wanted : std::min(wanted, most.integer());
}

// Continues a prompt by the most likely token of each step.
inline std::vector<int32_t> generate(const Bundle& bundle, Decoder& decoder, const std::vector<int32_t>& prompt,
                                     int length) {
  std::vector<int32_t> found;
  if (prompt.empty() || static_cast<int>(prompt.size()) >= length) {
    throw std::runtime_error("the prompt is empty or too long");
  }
  std::vector<float> logits = decoder.prefill(prompt);
  for (int index = static_cast<int>(prompt.size());; ++index) {
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    if (is_end(bundle.manifest["generation"], static_cast<int32_t>(best))) break;
    found.push_back(static_cast<int32_t>(best));
    if (index + 1 >= length) break;
    logits = decoder.decode(static_cast<int32_t>(best), index);
  }
  return found;
}

// `PROGRAM classify BUNDLE IMAGE` or `PROGRAM generate BUNDLE TEXT COUNT`.
inline int run(int argc, char** argv, const std::function<void(const std::string&, const std::string&)>& classify,
               const std::function<void(const std::string&, const std::string&, int)>& write) {
  const std::vector<std::string> words(argv, argv + argc);
  try {
    if (argc == 4 && words[1] == "classify") {
      classify(words[2], words[3]);
    } else if (argc == 5 && words[1] == "generate") {
      write(words[2], words[3], std::stoi(words[4]));
    } else {
      std::cerr << words[0] << " classify BUNDLE IMAGE.pgm\n" << words[0] << " generate BUNDLE TEXT COUNT\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

// Prints the continuation, and on stderr its tokens.
inline void print_text(const BytePair& tokenizer, const std::vector<int32_t>& ids) {
  std::cout << tokenizer.decode(ids) << '\n';
  std::cerr << "tokens";
  for (int32_t id : ids) std::cerr << ' ' << id;
  std::cerr << '\n';
}
