// The part of ONNX Runtime's C interface that main.cpp calls, for machines that have the library without its headers, such
// as the Python wheel (`onnxruntime/capi/libonnxruntime.so.*`) or the npm package onnxruntime-node. A release of ONNX Runtime
// brings `onnxruntime_c_api.h`, which main.cpp takes where it is found.
//
// `OrtApi` is a table of functions which only grows at its end. The numbers are the positions in it; all functions here are
// part of version 1 of the interface.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtEnv;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;

struct OrtAllocator {
  uint32_t version;
  void* (*Alloc)(OrtAllocator*, size_t);
  void (*Free)(OrtAllocator*, void*);
  const OrtMemoryInfo* (*Info)(const OrtAllocator*);
};

enum OrtLoggingLevel { ORT_LOGGING_LEVEL_ERROR = 3 };

enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = 3,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
};

#define ORT_API_VERSION 1

struct OrtApi {
  void* unused_0[2];
  const char* (*GetErrorMessage)(const OrtStatus*);  // 2
  OrtStatus* (*CreateEnv)(OrtLoggingLevel, const char* log_id, OrtEnv**);
  void* unused_4[3];
  OrtStatus* (*CreateSession)(const OrtEnv*, const char* path, const OrtSessionOptions*, OrtSession**);  // 7
  void* unused_8;
  OrtStatus* (*Run)(OrtSession*, const OrtRunOptions*, const char* const* input_names, const OrtValue* const* inputs,
                    size_t num_inputs, const char* const* output_names, size_t num_outputs, OrtValue** outputs);  // 9
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions**);
  void* unused_11[13];
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions*, int);  // 24
  void* unused_25[12];
  OrtStatus* (*SessionGetOutputName)(const OrtSession*, size_t index, OrtAllocator*, char** name);  // 37
  void* unused_38[10];
  OrtStatus* (*CreateTensorAsOrtValue)(OrtAllocator*, const int64_t* shape, size_t rank, ONNXTensorElementDataType,
                                       OrtValue**);  // 48
  void* unused_49[2];
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);  // 51
  void* unused_52[12];
  OrtStatus* (*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo*, size_t*);  // 64
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue*, OrtTensorTypeAndShapeInfo**);
  void* unused_66[12];
  OrtStatus* (*GetAllocatorWithDefaultOptions)(OrtAllocator**);  // 78
  void* unused_79[13];
  void (*ReleaseEnv)(OrtEnv*);  // 92
  void (*ReleaseStatus)(OrtStatus*);
  void* unused_94;
  void (*ReleaseSession)(OrtSession*);
  void (*ReleaseValue)(OrtValue*);  // 96
  void* unused_97[2];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo*);  // 99
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

extern "C" const OrtApiBase* OrtGetApiBase();
