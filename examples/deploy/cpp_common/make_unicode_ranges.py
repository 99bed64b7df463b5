"""Writes `unicode_ranges.h`, the letters and the numbers of Unicode: `python make_unicode_ranges.py > unicode_ranges.h`."""

import sys
import unicodedata


def ranges(kind: str) -> str:
    """Returns the first and last code points of runs of one general category, as C++."""
    inside = [unicodedata.category(chr(code)).startswith(kind) for code in range(sys.maxunicode + 1)]
    begins = [code for code, here in enumerate(inside) if here and not inside[code - 1]]
    ends = [code for code, here in enumerate(inside) if here and not inside[code + 1]]
    found = [f"{{0x{begin:X}, 0x{end:X}}}" for begin, end in zip(begins, ends, strict=True)]
    lines = (", ".join(found[index : index + 6]) for index in range(0, len(found), 6))
    return ",\n    ".join(lines)


HEADER = """// Letters and numbers of Unicode {version}, for byte_pair.h. Written by make_unicode_ranges.py.
#pragma once

#include <algorithm>
#include <iterator>

enum class Category {{ kOther, kLetter, kNumber, kSpace }};

struct CodeRange {{
  unsigned first, last;
}};

inline const CodeRange kLetters[] = {{
    {letters}}};

inline const CodeRange kNumbers[] = {{
    {numbers}}};

inline const CodeRange kSpaces[] = {{
    {{0x9, 0xD}}, {{0x20, 0x20}}, {{0x85, 0x85}}, {{0xA0, 0xA0}}, {{0x1680, 0x1680}}, {{0x2000, 0x200A}},
    {{0x2028, 0x2029}}, {{0x202F, 0x202F}}, {{0x205F, 0x205F}}, {{0x3000, 0x3000}}}};

template <typename Ranges>
bool is_in(unsigned code, const Ranges& ranges) {{
  const auto next = std::partition_point(std::begin(ranges), std::end(ranges),
                                         [code](const CodeRange& range) {{ return range.last < code; }});
  return next != std::end(ranges) && next->first <= code;
}}

inline Category category(unsigned code) {{
  if (is_in(code, kSpaces)) return Category::kSpace;
  if (is_in(code, kLetters)) return Category::kLetter;
  return is_in(code, kNumbers) ? Category::kNumber : Category::kOther;
}}
"""

if __name__ == "__main__":
    print(HEADER.format(version=unicodedata.unidata_version, letters=ranges("L"), numbers=ranges("N")), end="")
