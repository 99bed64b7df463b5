// Byte-level byte-pair encoding from the tokenizer.json of a bundle, as `keras_transformer.text.BytePair` encodes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "json.h"
#include "unicode_ranges.h"

class BytePair {
 public:
  // Raises std::runtime_error where the files split or normalize texts in a way that is not implemented here.
  explicit BytePair(const std::string& folder) {
    const std::string path = folder + "/tokenizer.json";
    const Json config = Json::read(folder + "/tokenizer_config.json"), file = Json::read(path);
    if (config["kind"].text != "byte_pair") throw std::runtime_error(folder + ": not a tokenizer of kind byte_pair");
    const Json& split = file["pre_tokenizer"];
    if (split["type"].text != "ByteLevel" || !file.get("normalizer").is_null()) {
      throw std::runtime_error(path + ": only a ByteLevel pre-tokenizer without a normalizer is implemented");
    }
    adds_space_ = split.get("add_prefix_space").flag;
    splits_words_ = split.get("use_regex").is_null() || split.get("use_regex").flag;
    make_alphabet();
    for (const auto& [token, id] : file["model"]["vocab"].items) add(token, id.integer(), bytes_of(token));
    for (const Json& added : file.get("added_tokens").list) {
      add(added["content"].text, added["id"].integer(), added["content"].text);
    }
    for (const auto& [role, token] : config["special_tokens"].items) {
      if (ids_.count(token.text)) bytes_[ids_[token.text]] = "";
      for (const Json& each : token.list) bytes_[ids_.at(each.text)] = "";
    }
    int rank = 0;
    for (const Json& merge : file["model"]["merges"].list) {
      // A pair, or in older files one string with a space.
      const size_t space = merge.text.find(' ');
      const bool is_text = merge.kind == Json::kText;
      const std::string left = is_text ? merge.text.substr(0, space) : merge.list.at(0).text;
      const std::string right = is_text ? merge.text.substr(space + 1) : merge.list.at(1).text;
      ranks_.emplace(left + ' ' + right, rank++);
    }
  }

  std::vector<int32_t> encode(const std::string& text) const {
    std::string content = adds_space_ && !text.empty() && text[0] != ' ' ? " " + text : text;
    std::vector<int32_t> ids;
    for (const std::string& word : splits_words_ ? words(content) : std::vector<std::string>{content}) merge(word, ids);
    return ids;
  }

  // The text of tokens, without special tokens.
  std::string decode(const std::vector<int32_t>& ids) const {
    std::string text;
    for (int32_t id : ids) text += bytes_.at(id);
    return text;
  }

 private:
  bool adds_space_ = false, splits_words_ = true;
  std::array<std::string, 256> alphabet_;  // The character that stands for each byte.
  std::unordered_map<std::string, int> byte_of_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, std::string> bytes_;
  std::unordered_map<std::string, int> ranks_;

  // Printable bytes stand for themselves, the others for the characters from U+0100 on (as in GPT-2).
  void make_alphabet() {
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      append_utf8(alphabet_[byte], is_printable ? byte : next++);
      byte_of_[alphabet_[byte]] = static_cast<int>(byte);
    }
  }

  void add(const std::string& token, int32_t id, const std::string& bytes) {
    ids_[token] = id;
    bytes_[id] = bytes;
  }

  // The bytes of a token that is written in the alphabet; others stand for themselves.
  std::string bytes_of(const std::string& token) const {
    std::string bytes;
    for (size_t at = 0; at < token.size();) {
      const size_t size = character_size(token, at);
      const auto byte = byte_of_.find(token.substr(at, size));
      if (byte == byte_of_.end()) return token;
      bytes += static_cast<char>(byte->second);
      at += size;
    }
    return bytes;
  }

  static size_t character_size(const std::string& text, size_t at) {
    const unsigned char first = text[at];
    const size_t size = first < 0x80 ? 1 : first < 0xC0 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (size == 0 || at + size > text.size()) throw std::runtime_error("the text is not UTF-8");
    return size;
  }

  // Splits by GPT-2's pattern: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  static std::vector<std::string> words(const std::string& text) {
    std::vector<size_t> starts;  // Of each character, and the end.
    std::vector<Category> kinds;
    for (size_t at = 0; at < text.size();) {
      const size_t size = character_size(text, at);
      unsigned code = size == 1 ? text[at] : static_cast<unsigned char>(text[at]) & (0x7F >> size);
      for (size_t next = 1; next < size; ++next) code = code << 6 | (static_cast<unsigned char>(text[at + next]) & 63);
      starts.push_back(at);
      kinds.push_back(category(code));
      at += size;
    }
    starts.push_back(text.size());
    std::vector<std::string> found;
    for (size_t begin = 0; begin < kinds.size();) {
      const size_t end = word_end(text, starts, kinds, begin);
      found.push_back(text.substr(starts[begin], starts[end] - starts[begin]));
      begin = end;
    }
    return found;
  }

  static size_t word_end(const std::string& text, const std::vector<size_t>& starts, const std::vector<Category>& kinds,
                         size_t begin) {
    const size_t count = kinds.size();
    for (const char* ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      const size_t size = std::strlen(ending);
      if (text.compare(starts[begin], size, ending) == 0) return begin + size;
    }
    const bool has_space = text[starts[begin]] == ' ' && begin + 1 < count && kinds[begin + 1] != Category::kSpace;
    size_t end = begin + has_space;
    const Category kind = kinds[end];
    while (end < count && kinds[end] == kind) ++end;
    // The last space before a word belongs to the word.
    return kind == Category::kSpace && end < count && end - begin > 1 ? end - 1 : end;
  }

  // Joins the neighbors of the lowest rank until no pair is left that has one.
  void merge(const std::string& word, std::vector<int32_t>& ids) const {
    std::vector<std::string> parts;
    for (unsigned char byte : word) parts.push_back(alphabet_[byte]);
    while (parts.size() > 1) {
      size_t best = parts.size();
      int lowest = 0;
      for (size_t at = 0; at + 1 < parts.size(); ++at) {
        const auto rank = ranks_.find(parts[at] + ' ' + parts[at + 1]);
        if (rank != ranks_.end() && (best == parts.size() || rank->second < lowest)) {
          best = at;
          lowest = rank->second;
        }
      }
      if (best == parts.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& part : parts) {
      const auto id = ids_.find(part);
      if (id == ids_.end()) throw std::runtime_error("the vocabulary lacks a byte");
      ids.push_back(id->second);
    }
  }
};
