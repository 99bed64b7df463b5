// A file of `ExportOptions(target="micro")`: its arena, its interpreter, and numbers in and out.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "model.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/schema/schema_generated.h"

class MicroModel {
 public:
  // Plans the tensors. False where an operator has no kernel, or the arena is too small.
  bool Begin() {
    const tflite::Model* file = tflite::GetModel(model::kData);
    if (file->version() != TFLITE_SCHEMA_VERSION) return false;
    static model::Resolver resolver;
    if (model::AddOperators(resolver) != kTfLiteOk) return false;
    alignas(16) static std::uint8_t arena[model::kArenaSize];
    static tflite::MicroInterpreter interpreter(file, resolver, arena, sizeof(arena));
    interpreter_ = &interpreter;
    return interpreter.AllocateTensors() == kTfLiteOk;
  }

  // Writes a number of an input; beyond the range of its integers it is cut off.
  void Set(int input, std::size_t index, float number) {
    TfLiteTensor* tensor = interpreter_->input(input);
    const model::Tensor& end = model::kInputs[input];
    switch (tensor->type) {
      case kTfLiteInt8:
        tensor->data.int8[index] = static_cast<std::int8_t>(Code(number, end, -128, 127));
        break;
      case kTfLiteInt16:
        tensor->data.i16[index] = static_cast<std::int16_t>(Code(number, end, -32768, 32767));
        break;
      case kTfLiteUInt8:
        tensor->data.uint8[index] = static_cast<std::uint8_t>(Code(number, end, 0, 255));
        break;
      case kTfLiteInt32:
        tensor->data.i32[index] = static_cast<std::int32_t>(number);
        break;
      default:
        tensor->data.f[index] = number;
    }
  }

  bool Invoke() { return interpreter_->Invoke() == kTfLiteOk; }

  // Reads a number of an output.
  float Get(int output, std::size_t index) {
    const TfLiteTensor* tensor = interpreter_->output(output);
    const model::Tensor& end = model::kOutputs[output];
    switch (tensor->type) {
      case kTfLiteInt8:
        return static_cast<float>(tensor->data.int8[index] - end.zero_point) * end.scale;
      case kTfLiteInt16:
        return static_cast<float>(tensor->data.i16[index] - end.zero_point) * end.scale;
      case kTfLiteUInt8:
        return static_cast<float>(tensor->data.uint8[index] - end.zero_point) * end.scale;
      case kTfLiteInt32:
        return static_cast<float>(tensor->data.i32[index]);
      default:
        return tensor->data.f[index];
    }
  }

  // Hands an output of the last call to an input of the next one: a state.
  void Carry(int output, int input) {
    for (std::size_t index = 0; index < model::kInputs[input].count; ++index) Set(input, index, Get(output, index));
  }

  // The place of the largest number of an output: the class of a classifier.
  std::size_t Largest(int output) {
    std::size_t best = 0;
    for (std::size_t index = 1; index < model::kOutputs[output].count; ++index) {
      if (Get(output, index) > Get(output, best)) best = index;
    }
    return best;
  }

 private:
  static int Code(float number, const model::Tensor& end, int least, int largest) {
    const float code = std::nearbyint(number / end.scale) + static_cast<float>(end.zero_point);
    return code < static_cast<float>(least) ? least : code > static_cast<float>(largest) ? largest : static_cast<int>(code);
  }

  tflite::MicroInterpreter* interpreter_ = nullptr;
};
