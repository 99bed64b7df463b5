#pragma once

#include <cstdint>

#define TFLITE_SCHEMA_VERSION (3)

namespace tflite {

class Model {
 public:
  std::uint32_t version() const;
};
const Model* GetModel(const void* data);

}  // namespace tflite
