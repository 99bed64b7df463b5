// The part of LiteRT's C interface that main.cpp calls, as in LiteRT 2.3, for machines that have the library without its
// headers, such as the Python wheel (`ai_edge_litert/libLiteRt.so`). LiteRT's C++ SDK brings `litert/c/litert_compiled_model.h`
// and the other headers, which main.cpp takes where they are found.
#pragma once

#include <cstddef>
#include <cstdint>

typedef class LiteRtCompiledModelT* LiteRtCompiledModel;
typedef class LiteRtEnvironmentT* LiteRtEnvironment;
typedef class LiteRtModelT* LiteRtModel;
typedef class LiteRtOpaqueOptionsT* LiteRtOpaqueOptions;
typedef class LiteRtSignatureT* LiteRtSignature;
typedef class LiteRtSubgraphT* LiteRtSubgraph;
typedef class LiteRtTensorT* LiteRtTensor;
typedef class LiteRtTensorBufferRequirementsT* LiteRtTensorBufferRequirements;
typedef class LiteRtTensorBufferT* LiteRtTensorBuffer;
typedef struct LiteRtOptionsT* LiteRtOptions;
typedef size_t LiteRtParamIndex;
typedef int LiteRtHwAcceleratorSet;

enum LiteRtStatus { kLiteRtStatusOk = 0 };
enum LiteRtHwAccelerators { kLiteRtHwAcceleratorCpu = 1, kLiteRtHwAcceleratorGpu = 2, kLiteRtHwAcceleratorNpu = 4 };
enum LiteRtTensorBufferLockMode { kLiteRtTensorBufferLockModeRead = 0, kLiteRtTensorBufferLockModeWrite = 1 };
enum LiteRtElementType {
  kLiteRtElementTypeFloat32 = 1,
  kLiteRtElementTypeInt32 = 2,
  kLiteRtElementTypeInt8 = 9,
  kLiteRtElementTypeFloat16 = 10,
};
// An option is a tag and a value of 16 bytes; this recipe passes none.
struct LiteRtEnvOption;

struct LiteRtLayout {
  unsigned rank : 7;
  unsigned has_strides : 1;
  int32_t dimensions[8];
  uint32_t strides[8];
};

struct LiteRtRankedTensorType {
  LiteRtElementType element_type;
  LiteRtLayout layout;
};

extern "C" {
LiteRtStatus LiteRtCreateEnvironment(int num_options, const LiteRtEnvOption*, LiteRtEnvironment*);
void LiteRtDestroyEnvironment(LiteRtEnvironment);

LiteRtStatus LiteRtCreateOptions(LiteRtOptions*);
LiteRtStatus LiteRtSetOptionsHardwareAccelerators(LiteRtOptions, LiteRtHwAcceleratorSet);
void LiteRtDestroyOptions(LiteRtOptions);
LiteRtStatus LiteRtCreateOpaqueOptions(const char* identifier, void* payload, void (*destroy)(void*), LiteRtOpaqueOptions*);
LiteRtStatus LiteRtAddOpaqueOptions(LiteRtOptions, LiteRtOpaqueOptions);  // Which owns them from then on.

LiteRtStatus LiteRtCreateModelFromFile(LiteRtEnvironment, const char* path, LiteRtModel*);
LiteRtStatus LiteRtGetNumModelSignatures(LiteRtModel, LiteRtParamIndex*);
LiteRtStatus LiteRtGetModelSignature(LiteRtModel, LiteRtParamIndex, LiteRtSignature*);
void LiteRtDestroyModel(LiteRtModel);

LiteRtStatus LiteRtGetSignatureKey(LiteRtSignature, const char**);
LiteRtStatus LiteRtGetNumSignatureInputs(LiteRtSignature, LiteRtParamIndex*);
LiteRtStatus LiteRtGetSignatureInputName(LiteRtSignature, LiteRtParamIndex, const char**);
LiteRtStatus LiteRtGetNumSignatureOutputs(LiteRtSignature, LiteRtParamIndex*);
LiteRtStatus LiteRtGetSignatureOutputName(LiteRtSignature, LiteRtParamIndex, const char**);

LiteRtStatus LiteRtCreateCompiledModel(LiteRtEnvironment, LiteRtModel, LiteRtOptions, LiteRtCompiledModel*);
LiteRtStatus LiteRtCompiledModelResizeInputTensor(LiteRtCompiledModel, LiteRtParamIndex signature, LiteRtParamIndex input,
                                                  const int* sizes, size_t rank);
LiteRtStatus LiteRtGetCompiledModelOutputTensorLayouts(LiteRtCompiledModel, LiteRtParamIndex signature, size_t num_layouts,
                                                       LiteRtLayout*, bool update_allocation);
LiteRtStatus LiteRtGetCompiledModelInputBufferRequirements(LiteRtCompiledModel, LiteRtParamIndex signature,
                                                           LiteRtParamIndex input, LiteRtTensorBufferRequirements*);
LiteRtStatus LiteRtGetCompiledModelOutputBufferRequirements(LiteRtCompiledModel, LiteRtParamIndex signature,
                                                            LiteRtParamIndex output, LiteRtTensorBufferRequirements*);
LiteRtStatus LiteRtRunCompiledModel(LiteRtCompiledModel, LiteRtParamIndex signature, size_t num_inputs, LiteRtTensorBuffer*,
                                    size_t num_outputs, LiteRtTensorBuffer*);
void LiteRtDestroyCompiledModel(LiteRtCompiledModel);

LiteRtStatus LiteRtCreateManagedTensorBufferFromRequirements(LiteRtEnvironment, const LiteRtRankedTensorType*,
                                                             LiteRtTensorBufferRequirements, LiteRtTensorBuffer*);
LiteRtStatus LiteRtLockTensorBuffer(LiteRtTensorBuffer, void** memory, LiteRtTensorBufferLockMode);
LiteRtStatus LiteRtUnlockTensorBuffer(LiteRtTensorBuffer);
void LiteRtDestroyTensorBuffer(LiteRtTensorBuffer);
}
