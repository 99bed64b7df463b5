// Byte-level byte-pair encoding from the tokenizer of a bundle, as `keras_transformer.text.BytePair` encodes.

import Foundation

final class BytePair {
  private struct Pair: Hashable {
    let left: String
    let right: String
  }

  // GPT-2's pattern. The spaces are those of Unicode, which differ from those of \s.
  private static let space = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
  private static let pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\(space)\\p{L}\\p{N}]+|[\(space)]+(?![^\(space)])|[\(space)]+"

  private let words: NSRegularExpression
  private let addsSpace: Bool
  private let splitsWords: Bool
  private let alphabet = BytePair.makeAlphabet()
  private var ids: [String: Int32] = [:]
  private var bytes: [Int32: [UInt8]] = [:]
  private var ranks: [Pair: Int] = [:]

  init(folder: URL) throws {
    words = try NSRegularExpression(pattern: BytePair.pattern)
    let config = try BytePair.object(folder.appendingPathComponent("tokenizer_config.json"))
    let file = try BytePair.object(folder.appendingPathComponent("tokenizer.json"))
    guard config["kind"] as? String == "byte_pair",
      let split = file["pre_tokenizer"] as? [String: Any], split["type"] as? String == "ByteLevel",
      file["normalizer"] == nil || file["normalizer"] is NSNull,
      let model = file["model"] as? [String: Any],
      let vocabulary = model["vocab"] as? [String: NSNumber],
      let merges = model["merges"] as? [Any]
    else {
      throw RecipeError("only a byte_pair tokenizer with a ByteLevel pre-tokenizer and no normalizer is implemented")
    }
    addsSpace = split["add_prefix_space"] as? Bool ?? false
    splitsWords = split["use_regex"] as? Bool ?? true
    let byteOf = Dictionary(uniqueKeysWithValues: alphabet.enumerated().map { ($1, UInt8($0)) })
    for (token, id) in vocabulary {
      ids[token] = id.int32Value
      let values = token.unicodeScalars.map { byteOf[String($0)] }
      bytes[id.int32Value] = values.contains(nil) ? Array(token.utf8) : values.compactMap { $0 }
    }
    let special = (config["special_tokens"] as? [String: Any] ?? [:]).values.flatMap { role in
      role as? [String] ?? [role as? String].compactMap { $0 }
    }
    for case let token as [String: Any] in file["added_tokens"] as? [Any] ?? [] {
      guard let name = token["content"] as? String, let id = token["id"] as? NSNumber else { continue }
      bytes[id.int32Value] = special.contains(name) ? [] : Array(name.utf8)
    }
    for (rank, merge) in merges.enumerated() {
      // A pair, or in older files one string with a space.
      let parts = merge as? [String] ?? (merge as? String ?? "").components(separatedBy: " ")
      guard parts.count == 2 else { throw RecipeError("a merge is not a pair: \(merge)") }
      ranks[Pair(left: parts[0], right: parts[1])] = rank
    }
  }

  func encode(_ text: String) throws -> [Int32] {
    let content = addsSpace && !text.isEmpty && !text.hasPrefix(" ") ? " " + text : text
    guard splitsWords else { return try merge(content) }
    // Ranges of NSString, which do not depend on how Swift joins scalars to characters.
    let whole = content as NSString
    let found = words.matches(in: content, range: NSRange(location: 0, length: whole.length))
    return try found.flatMap { try merge(whole.substring(with: $0.range)) }
  }

  /// The text of tokens, without special tokens.
  func decode(_ tokens: [Int32]) -> String {
    String(decoding: tokens.flatMap { bytes[$0] ?? [] }, as: UTF8.self)
  }

  /// Joins the neighbors of the lowest rank until no pair is left that has one.
  private func merge(_ word: String) throws -> [Int32] {
    var parts = word.utf8.map { alphabet[Int($0)] }
    while parts.count > 1 {
      var best: (place: Int, rank: Int)?
      for place in 0..<(parts.count - 1) {
        guard let rank = ranks[Pair(left: parts[place], right: parts[place + 1])] else { continue }
        if best == nil || rank < best!.rank {
          best = (place, rank)
        }
      }
      guard let place = best?.place else { break }
      parts.replaceSubrange(place...(place + 1), with: [parts[place] + parts[place + 1]])
    }
    return try parts.map { part in
      guard let id = ids[part] else { throw RecipeError("the vocabulary lacks a byte") }
      return id
    }
  }

  private static func object(_ url: URL) throws -> [String: Any] {
    guard let found = try JSONSerialization.jsonObject(with: Data(contentsOf: url)) as? [String: Any] else {
      throw RecipeError("\(url.lastPathComponent) is not a JSON object")
    }
    return found
  }

  /// The character that stands for each byte: printable bytes for themselves, the others from U+0100 on.
  private static func makeAlphabet() -> [String] {
    var next: UInt32 = 0x100
    return (UInt32(0)..<256).map { byte in
      let isPrintable = (0x21...0x7E).contains(byte) || (byte > 0xA0 && byte != 0xAD)
      let code = isPrintable ? byte : next
      next += isPrintable ? 0 : 1
      return String(Character(Unicode.Scalar(code)!))
    }
  }
}
