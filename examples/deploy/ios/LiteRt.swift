// A classifier and a language model on LiteRT.
//
// Swift package: https://github.com/google-ai-edge/LiteRT, product LiteRT

import Foundation
import LiteRT

/// One signature of a compiled model, with its buffers by the names of the manifest.
final class LiteRtSignature {
  let signature: Signature
  var inputs: [String: TensorBuffer] = [:]
  var outputs: [String: TensorBuffer] = [:]
  private let model: CompiledModel
  private let index: Int
  private let inputNames: [String]
  private let outputNames: [String]

  init(_ signature: Signature, of model: CompiledModel) throws {
    guard let index = try model.signatureKeys().firstIndex(of: signature.name) else {
      throw RecipeError("the file has no signature \(signature.name)")
    }
    self.signature = signature
    self.model = model
    self.index = index
    // The names of the manifest in the order of the file.
    let named = { (names: [String: String]?, inFile: String) in names?.first { $0.value == inFile }?.key ?? inFile }
    inputNames = try (0..<model.inputCount(signatureIndex: index)).map {
      named(signature.names?.inputs, try model.inputName(inputIndex: $0, signatureIndex: index))
    }
    outputNames = try (0..<model.outputCount(signatureIndex: index)).map {
      named(signature.names?.outputs, try model.outputName(outputIndex: $0, signatureIndex: index))
    }
    let given = try model.createInputBuffers(signatureIndex: index)
    let results = try model.createOutputBuffers(signatureIndex: index)
    inputs = Dictionary(uniqueKeysWithValues: zip(inputNames, given))
    outputs = Dictionary(uniqueKeysWithValues: zip(outputNames, results))
  }

  func run() throws {
    try model.run(
      inputs: inputNames.compactMap { inputs[$0] }, outputs: outputNames.compactMap { outputs[$0] },
      signatureIndex: index)
  }

  func write<T>(_ values: [T], to name: String) throws {
    guard let buffer = inputs[name] else { throw RecipeError("no input \(name)") }
    try buffer.write(values)
  }

  /// The values of an output; a buffer may be longer than they are.
  func floats(_ name: String) throws -> [Float] {
    guard let buffer = outputs[name], let spec = signature.outputs.first(where: { $0.name == name }) else {
      throw RecipeError("no output \(name)")
    }
    let values: [Float] = try buffer.read()
    return Array(values.prefix(try spec.fixedShape(["batch": 1]).reduce(1, *)))
  }
}

/// The file of a signature. `[.gpu, .cpu]` computes on the GPU, and on the CPU what the GPU does not take.
///
/// On the CPU, its weights are packed once, into a file in the app's caches, which is mapped from then on. It is renamed when
/// it is complete, so that an app that ends early leaves no part of it.
func openLiteRt(_ signature: Signature, accelerators: Set<Accelerator> = [.cpu]) throws -> CompiledModel {
  guard accelerators == [.cpu] else { return try compiled(signature.path, accelerators, weights: nil) }
  let files = FileManager.default
  let folder = try files.url(for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
  let weights = folder.appendingPathComponent("\(signature.sha256.prefix(32)).xnnpack")
  if !files.fileExists(atPath: weights.path) {
    let partial = weights.appendingPathExtension("partial")
    try? files.removeItem(at: partial)
    _ = try compiled(signature.path, accelerators, weights: partial.path)
    try files.moveItem(at: partial, to: weights)
  }
  return try compiled(signature.path, accelerators, weights: weights.path)
}

private func compiled(_ path: String, _ accelerators: Set<Accelerator>, weights: String?) throws -> CompiledModel {
  let options = try Options()
  try options.setHardwareAccelerators(accelerators)
  if let weights {
    // Options of the CPU, as LiteRT reads them: lines of TOML.
    guard let payload = strdup("weight_cache_file_path = \"\(weights)\"\n") else { throw RecipeError("no memory") }
    let cpu = try OpaqueOptions(identifier: "xnnpack", payload: payload, destructor: { free($0) })
    try options.addOpaqueOptions(cpu)
  }
  return try CompiledModel(filePath: path, environment: try Environment(), options: options)
}

final class LiteRtClassifier {
  private let bundle: ModelBundle
  private let runner: LiteRtSignature
  private let input: Spec

  /// Of the input: 1, height, width, channels.
  let shape: [Int]

  init(_ bundle: ModelBundle) throws {
    self.bundle = bundle
    // A signature of fixed shapes where the bundle has one, from `export(..., options=ExportOptions(static={"batch": 1}))`.
    let signature = try bundle.signature(bundle.files["serve_1"] == nil ? "serve" : "serve_1")
    runner = try LiteRtSignature(signature, of: openLiteRt(signature))
    input = signature.inputs[0]
    shape = try input.fixedShape(["batch": 1])
  }

  /// Classes and probabilities of an image, whose pixels are from 0 to 255.
  func classify(_ pixels: [Float]) throws -> [(name: String, probability: Float)] {
    try runner.write(pixels, to: input.name)
    try runner.run()
    return bundle.classes(try runner.floats("probabilities"))
  }
}

/// The signatures of fixed shapes: `prefill_32`, `prefill_128`, ... read prompts, and `decode_1` one token.
final class LiteRtDecoder: LanguageDecoder {
  let mostSlots: Int
  private let bundle: ModelBundle
  private let model: CompiledModel
  private let step: LiteRtSignature
  private let sizes: [Int]
  private let chunk: Int

  init(_ bundle: ModelBundle) throws {
    self.bundle = bundle
    let signature = try bundle.signature("decode_1")
    model = try openLiteRt(signature)
    step = try LiteRtSignature(signature, of: model)
    let lengths = { (kind: String) in
      bundle.files.keys.filter { $0.hasPrefix(kind) }.compactMap { Int($0.dropFirst(kind.count)) }.sorted()
    }
    sizes = lengths("prefill_")
    chunk = lengths("extend_").first ?? Int.max
    var slots = Int.max
    for spec in try bundle.signature("prefill").cache {
      if let axis = spec.axes.firstIndex(of: "cache_length") {
        slots = try signature.input(spec.name).fixedShape()[axis]
      }
    }
    mostSlots = slots
  }

  func start(slots: Int) throws {
    for spec in step.signature.cache {
      let count = try spec.fixedShape().reduce(1, *)
      switch spec.dtype {
      case "float32": try step.write([Float](repeating: 0, count: count), to: spec.name)
      case "int8": try step.write([Int8](repeating: 0, count: count), to: spec.name)
      default: throw RecipeError("a cache of \(spec.dtype) is not implemented")
      }
    }
  }

  /// Reads as much as the smallest signature that holds the prompt, or the largest, takes; further tokens in chunks and one
  /// by one.
  func prefill(_ ids: [Int32]) throws -> [Float] {
    let size = sizes.first { $0 >= ids.count } ?? sizes.last ?? 0
    let first = min(size, ids.count)
    var logits: [Float] = []
    if size > 0 {
      let reader = try LiteRtSignature(bundle.signature("prefill_\(size)"), of: model)
      try reader.write(Array(ids.prefix(first)) + [Int32](repeating: 0, count: size - first), to: "token_ids")
      logits = try read(reader, "lengths", first)
    }
    var index = first
    while ids.count - index >= chunk {
      let reader = try LiteRtSignature(bundle.signature("extend_\(chunk)"), of: model)
      try reader.write(Array(ids[index..<index + chunk]), to: "token_ids")
      logits = try read(reader, "cache_index", index)
      index += chunk
    }
    while index < ids.count {
      logits = try decode(ids[index], index: index)
      index += 1
    }
    // A chunk has the logits after each of its tokens.
    let last = step.signature.outputs.first { $0.name == "logits" }
    return Array(logits.suffix(try last?.fixedShape(["batch": 1]).last ?? logits.count))
  }

  func decode(_ id: Int32, index: Int) throws -> [Float] {
    try step.write([id], to: "token_ids")
    return try read(step, "cache_index", index)
  }

  /// The cache changes hands instead of being copied: what a run wrote is what the next run reads.
  private func read(_ runner: LiteRtSignature, _ indexName: String, _ index: Int) throws -> [Float] {
    try runner.write([Int32(index)], to: indexName)
    let names = step.signature.cache.map(\.name)
    for name in names {
      runner.inputs[name] = step.inputs[name]
    }
    try runner.run()
    for name in names {
      let written = runner.outputs[name]
      runner.outputs[name] = step.inputs[name]
      step.inputs[name] = written
    }
    return try runner.floats("logits")
  }
}
