// A reader of JSON, enough for a manifest and a tokenizer: replace it by the JSON library of your program if you have one.
#pragma once

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

inline void append_utf8(std::string& text, unsigned code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 63));
    text += static_cast<char>(0x80 | (code & 63));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 63));
    text += static_cast<char>(0x80 | (code >> 6 & 63));
    text += static_cast<char>(0x80 | (code & 63));
  }
}

class Json {
 public:
  enum Kind { kNull, kBool, kNumber, kText, kList, kObject };

  Kind kind = kNull;
  bool flag = false;
  double number = 0;
  std::string text;
  std::vector<Json> list;
  std::vector<std::pair<std::string, Json>> items;  // Of an object, in the order of the file.

  bool is_null() const { return kind == kNull; }
  int integer() const { return static_cast<int>(number); }

  // The value of a key, or null.
  const Json& get(const std::string& key) const {
    static const Json null;
    for (const auto& [name, value] : items) {
      if (name == key) return value;
    }
    return null;
  }

  const Json& operator[](const std::string& key) const {
    const Json& found = get(key);
    if (found.is_null()) throw std::runtime_error("no \"" + key + "\"");
    return found;
  }

  static Json read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    std::stringstream content;
    content << file.rdbuf();
    try {
      const std::string text = content.str();
      return Reader{text.c_str(), text.c_str() + text.size()}.whole();
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(path + ": " + error.what());
    }
  }

 private:
  struct Reader {
    const char* at;
    const char* end;

    Json whole() {
      Json found = value();
      skip_spaces();
      if (at != end) throw std::runtime_error("text after the JSON value");
      return found;
    }

    void skip_spaces() {
      while (at != end && std::strchr(" \t\r\n", *at) != nullptr) ++at;
    }

    bool take(char wanted) {
      skip_spaces();
      if (at == end || *at != wanted) return false;
      ++at;
      return true;
    }

    void expect(char wanted) {
      if (!take(wanted)) throw std::runtime_error(std::string("not JSON: expected ") + wanted);
    }

    Json value() {
      skip_spaces();
      if (at == end) throw std::runtime_error("not JSON: it ends too early");
      Json found;
      if (*at == '{') {
        found.kind = kObject;
        members('}', [&] {
          std::string key = string();
          expect(':');
          found.items.emplace_back(std::move(key), value());
        });
      } else if (*at == '[') {
        found.kind = kList;
        members(']', [&] { found.list.push_back(value()); });
      } else if (*at == '"') {
        found.kind = kText;
        found.text = string();
      } else if (word("true") || word("false")) {
        found.kind = kBool;
        found.flag = at[-2] == 'u';
      } else if (!word("null")) {
        found.kind = kNumber;
        char* after = nullptr;
        found.number = std::strtod(at, &after);
        if (after == at) throw std::runtime_error("not JSON: expected a value");
        at = after;
      }
      return found;
    }

    template <typename Member>
    void members(char closing, Member member) {
      ++at;
      if (take(closing)) return;
      do member();
      while (take(','));
      expect(closing);
    }

    bool word(const char* wanted) {
      const size_t size = std::strlen(wanted);
      if (static_cast<size_t>(end - at) < size || std::strncmp(at, wanted, size) != 0) return false;
      at += size;
      return true;
    }

    std::string string() {
      expect('"');
      std::string found;
      while (at != end && *at != '"') {
        if (*at != '\\') {
          found += *at++;
          continue;
        }
        if (++at == end) break;
        const char escape = *at++;
        if (escape == 'u') {
          unsigned code = hexadecimal();
          const bool is_pair = code >= 0xD800 && code < 0xDC00 && end - at > 6 && at[0] == '\\' && at[1] == 'u';
          if (is_pair) {
            at += 2;
            code = 0x10000 + ((code - 0xD800) << 10) + (hexadecimal() - 0xDC00);
          }
          append_utf8(found, code);
        } else {
          const char* names = "bfnrt";
          const char* place = std::strchr(names, escape);
          found += place == nullptr ? escape : "\b\f\n\r\t"[place - names];
        }
      }
      expect('"');
      return found;
    }

    unsigned hexadecimal() {
      if (end - at < 4) throw std::runtime_error("not JSON: it ends too early");
      const std::string digits(at, at + 4);
      at += 4;
      return static_cast<unsigned>(std::strtoul(digits.c_str(), nullptr, 16));
    }
  };
};
