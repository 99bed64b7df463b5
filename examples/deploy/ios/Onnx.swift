// A classifier and a language model on ONNX Runtime.
//
// Swift package: https://github.com/microsoft/onnxruntime-swift-package-manager

import Foundation
import OnnxRuntimeBindings

/// One signature, which has an ONNX file of its own.
final class OnnxSignature {
  let signature: Signature
  private let session: ORTSession
  private let outputNames: [String]

  init(_ signature: Signature, environment: ORTEnv) throws {
    self.signature = signature
    session = try ORTSession(env: environment, modelPath: signature.path, sessionOptions: try ORTSessionOptions())
    // A file has the outputs in the order of the manifest, some of them under another name.
    let order = try session.outputNames()
    outputNames = signature.outputs.enumerated().map { index, spec in signature.names?.outputs[spec.name] ?? order[index] }
  }

  /// Tensors by the names of the manifest.
  func run(_ inputs: [String: ORTValue]) throws -> [String: ORTValue] {
    let given = Dictionary(
      uniqueKeysWithValues: inputs.map { (signature.names?.inputs[$0.key] ?? $0.key, $0.value) })
    let found = try session.run(withInputs: given, outputNames: Set(outputNames), runOptions: nil)
    return Dictionary(
      uniqueKeysWithValues: zip(signature.outputs, outputNames).compactMap { spec, name in
        found[name].map { (spec.name, $0) }
      })
  }

  static func tensor(_ spec: Spec, _ shape: [Int], _ data: Data) throws -> ORTValue {
    let types: [String: ORTTensorElementDataType] = ["float32": .float, "int32": .int32, "int8": .int8]
    guard let type = types[spec.dtype] else {
      throw RecipeError("a tensor of \(spec.dtype) is not implemented")
    }
    return try ORTValue(
      tensorData: NSMutableData(data: data), elementType: type, shape: shape.map { NSNumber(value: $0) })
  }

  static func zeros(_ spec: Spec, _ shape: [Int]) throws -> ORTValue {
    let bytes = shape.reduce(1, *) * (spec.dtype == "int8" ? 1 : 4)
    return try tensor(spec, shape, Data(count: bytes))
  }

  static func floats(_ value: ORTValue?) throws -> [Float] {
    guard let value else { throw RecipeError("an output is missing") }
    let data = try value.tensorData() as Data
    return data.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) }
  }
}

final class OnnxClassifier {
  private let bundle: ModelBundle
  private let model: OnnxSignature
  private let input: Spec

  /// Of the input: 1, height, width, channels.
  let shape: [Int]

  init(_ bundle: ModelBundle, environment: ORTEnv) throws {
    self.bundle = bundle
    model = try OnnxSignature(bundle.signature("serve"), environment: environment)
    input = model.signature.inputs[0]
    shape = try input.fixedShape(["batch": 1])
  }

  /// Classes and probabilities of an image, whose pixels are from 0 to 255.
  func classify(_ pixels: [Float]) throws -> [(name: String, probability: Float)] {
    let image = try OnnxSignature.tensor(input, shape, pixels.withUnsafeBytes { Data($0) })
    return bundle.classes(try OnnxSignature.floats(model.run([input.name: image])["probabilities"]))
  }
}

final class OnnxDecoder: LanguageDecoder {
  let mostSlots = Int.max
  private let reader: OnnxSignature
  private let step: OnnxSignature
  private var cache: [String: ORTValue] = [:]

  init(_ bundle: ModelBundle, environment: ORTEnv) throws {
    reader = try OnnxSignature(bundle.signature("prefill"), environment: environment)
    let name = bundle.files["decode_token"] == nil ? "decode" : "decode_token"
    step = try OnnxSignature(bundle.signature(name), environment: environment)
  }

  func start(slots: Int) throws {
    for spec in step.signature.cache {
      cache[spec.name] = try OnnxSignature.zeros(spec, spec.fixedShape(["batch": 1, "cache_length": slots]))
    }
  }

  func prefill(_ ids: [Int32]) throws -> [Float] {
    try read(reader, "lengths", ids, Int32(ids.count))
  }

  func decode(_ id: Int32, index: Int) throws -> [Float] {
    try read(step, "cache_index", [id], Int32(index))
  }

  private func read(_ model: OnnxSignature, _ indexName: String, _ ids: [Int32], _ index: Int32) throws -> [Float] {
    var inputs = cache
    let tokens = ids.withUnsafeBytes { Data($0) }
    inputs["token_ids"] = try OnnxSignature.tensor(model.signature.input("token_ids"), [1, ids.count], tokens)
    let place = withUnsafeBytes(of: index) { Data($0) }
    inputs[indexName] = try OnnxSignature.tensor(model.signature.input(indexName), [1], place)
    let outputs = try model.run(inputs)
    for name in cache.keys {
      cache[name] = outputs[name]
    }
    return try OnnxSignature.floats(outputs["logits"])
  }
}
