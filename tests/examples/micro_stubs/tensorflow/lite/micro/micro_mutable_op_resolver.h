// The part of TensorFlow Lite for Microcontrollers that programs use, to compile them without it.
#pragma once

#include <cstdint>

enum TfLiteStatus { kTfLiteOk, kTfLiteError };
enum TfLiteType { kTfLiteNoType, kTfLiteFloat32, kTfLiteInt32, kTfLiteUInt8, kTfLiteInt16, kTfLiteInt8 };
union TfLitePtrUnion {
  float* f;
  std::int32_t* i32;
  std::int16_t* i16;
  std::uint8_t* uint8;
  std::int8_t* int8;
};
struct TfLiteTensor {
  TfLiteType type;
  TfLitePtrUnion data;
};

namespace tflite {

class MicroOpResolver {};

// What the tests' models have, and no more: a method that the real class lacks does not compile.
template <unsigned int kCount>
class MicroMutableOpResolver : public MicroOpResolver {
 public:
  TfLiteStatus AddAveragePool2D() { return Add(); }
  TfLiteStatus AddConv2D() { return Add(); }
  TfLiteStatus AddDepthwiseConv2D() { return Add(); }
  TfLiteStatus AddDequantize() { return Add(); }
  TfLiteStatus AddEthosU() { return Add(); }
  TfLiteStatus AddFullyConnected() { return Add(); }
  TfLiteStatus AddMean() { return Add(); }
  TfLiteStatus AddQuantize() { return Add(); }
  TfLiteStatus AddReshape() { return Add(); }
  TfLiteStatus AddSoftmax() { return Add(); }
  unsigned int count() const { return count_; }

 private:
  TfLiteStatus Add() { return ++count_ <= kCount ? kTfLiteOk : kTfLiteError; }
  unsigned int count_ = 0;
};

}  // namespace tflite
