// What a bundle's manifest says of its files, and the loop that continues a text.

import Foundation

struct RecipeError: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) {
    self.description = description
  }
}

/// A tensor of a signature, as the manifest describes it: sizes are nil where dynamic, names of axes where fixed.
struct Spec: Decodable {
  let name: String
  let dtype: String
  let shape: [Int?]
  let axes: [String?]

  /// The shape with the sizes of the dynamic axes.
  func fixedShape(_ sizes: [String: Int] = [:]) throws -> [Int] {
    try zip(shape, axes).map { size, axis in
      guard let found = size ?? axis.flatMap({ sizes[$0] }) else {
        throw RecipeError("\(name) has a dynamic axis of unknown size")
      }
      return found
    }
  }
}

/// Names of the manifest to names in the file. Manifests of earlier versions lack them.
struct FileNames: Decodable {
  let inputs: [String: String]
  let outputs: [String: String]
}

struct Signature {
  let name: String
  let path: String
  let inputs: [Spec]
  let outputs: [Spec]
  let names: FileNames?
  /// Of the file.
  let sha256: String

  /// The tensors of the cache: what a step takes and gives back under one name.
  var cache: [Spec] {
    inputs.filter { input in outputs.contains { $0.name == input.name } }
  }

  func input(_ name: String) throws -> Spec {
    guard let spec = inputs.first(where: { $0.name == name }) else {
      throw RecipeError("signature \(self.name) has no input \(name)")
    }
    return spec
  }
}

/// The part of `manifest.json` that is read here.
struct Manifest: Decodable {
  struct SignatureRecord: Decodable {
    let inputs: [Spec]
    let outputs: [Spec]
  }

  struct Artifact: Decodable {
    let signatures: [String: String]
    let names: [String: FileNames]?
  }

  struct Metadata: Decodable {
    let classNames: [String]?

    enum CodingKeys: String, CodingKey {
      case classNames = "class_names"
    }
  }

  struct Generation: Decodable {
    let maxLength: Int?
    let endIds: [Int]

    enum CodingKeys: String, CodingKey {
      case maxLength = "max_length"
      case endId = "end_id"
    }

    init(from decoder: Swift.Decoder) throws {
      let values = try decoder.container(keyedBy: CodingKeys.self)
      maxLength = try values.decodeIfPresent(Int.self, forKey: .maxLength)
      // One token, several or none.
      if let several = try? values.decode([Int].self, forKey: .endId) {
        endIds = several
      } else {
        endIds = try values.decodeIfPresent(Int.self, forKey: .endId).map { [$0] } ?? []
      }
    }
  }

  struct TokenizerRecord: Decodable {
    let path: String
  }

  struct FileRecord: Decodable {
    let sha256: String
  }

  let signatures: [String: SignatureRecord]
  let artifacts: [String: Artifact]
  let metadata: Metadata
  let generation: Generation?
  let tokenizer: TokenizerRecord?
  let files: [String: FileRecord]
}

/// A folder written by `keras_transformer.export`.
final class ModelBundle {
  let manifest: Manifest
  let files: [String: String]
  private let names: [String: FileNames]
  private let folder: URL

  /// - Parameter format: "onnx" or "tflite".
  init(folder: URL, format: String) throws {
    let content = try Data(contentsOf: folder.appendingPathComponent("manifest.json"))
    manifest = try JSONDecoder().decode(Manifest.self, from: content)
    guard let artifact = manifest.artifacts[format] else {
      throw RecipeError("the bundle has no \(format) file")
    }
    files = artifact.signatures
    names = artifact.names ?? [:]
    self.folder = folder
  }

  func signature(_ name: String) throws -> Signature {
    guard let file = files[name], let record = manifest.signatures[name] else {
      throw RecipeError("the bundle has no signature \(name)")
    }
    let path = folder.appendingPathComponent(file).path
    return Signature(
      name: name, path: path, inputs: record.inputs, outputs: record.outputs, names: names[name],
      sha256: manifest.files[file]?.sha256 ?? "")
  }

  func tokenizer() throws -> BytePair {
    guard let record = manifest.tokenizer else {
      throw RecipeError("the bundle has no tokenizer")
    }
    return try BytePair(folder: folder.appendingPathComponent(record.path))
  }

  /// Classes and their probabilities, the most likely first. Classes are numbers where the bundle was exported without
  /// `metadata={"class_names": [...]}`.
  func classes(_ probabilities: [Float]) -> [(name: String, probability: Float)] {
    let names = manifest.metadata.classNames ?? []
    let pairs = probabilities.enumerated().map { index, value in
      (name: index < names.count ? names[index] : String(index), probability: value)
    }
    return pairs.sorted { $0.probability > $1.probability }
  }

  /// The most tokens that a prompt and its continuation may have together.
  func cacheLength(prompt: [Int32], count: Int) -> Int {
    min(prompt.count + count, manifest.generation?.maxLength ?? Int.max)
  }
}

/// A language model in a runtime. Both functions return the logits after the last token that they read.
protocol LanguageDecoder: AnyObject {
  /// The most slots that the cache may have.
  var mostSlots: Int { get }

  /// Empties the cache, which gets at least `slots` slots.
  func start(slots: Int) throws

  func prefill(_ ids: [Int32]) throws -> [Float]
  func decode(_ id: Int32, index: Int) throws -> [Float]
}

/// The most likely tokens after a prompt, at most `count`; each is handed to `each` as soon as it is known.
func generate(
  _ bundle: ModelBundle, _ decoder: LanguageDecoder, prompt: [Int32], count: Int, each: (Int32) -> Void = { _ in }
) throws -> [Int32] {
  let length = min(bundle.cacheLength(prompt: prompt, count: count), decoder.mostSlots)
  guard !prompt.isEmpty, prompt.count < length else {
    throw RecipeError("the prompt is empty or too long")
  }
  var found: [Int32] = []
  try decoder.start(slots: length)
  var logits = try decoder.prefill(prompt)
  for index in prompt.count..<length {
    guard let best = logits.indices.max(by: { logits[$0] < logits[$1] }),
      !(bundle.manifest.generation?.endIds.contains(best) ?? false)
    else { break }
    found.append(Int32(best))
    each(Int32(best))
    if index + 1 < length {
      logits = try decoder.decode(Int32(best), index: index)
    }
  }
  return found
}
