#pragma once

#include <cstddef>

#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"

namespace tflite {

class MicroInterpreter {
 public:
  MicroInterpreter(const Model*, const MicroOpResolver&, std::uint8_t*, std::size_t);
  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
  TfLiteTensor* input(std::size_t);
  TfLiteTensor* output(std::size_t);
};

}  // namespace tflite
