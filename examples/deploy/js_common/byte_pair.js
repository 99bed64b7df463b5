// Byte-level byte-pair encoding from the tokenizer of a bundle, as `keras_transformer.text.BytePair` encodes.

// GPT-2's pattern. The spaces are those of Unicode, which differ from those of \s.
const SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORDS = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);

export class BytePair {
  // `config` and `file`: the parsed tokenizer_config.json and tokenizer.json.
  constructor(config, file) {
    const split = file.pre_tokenizer;
    if (config.kind !== "byte_pair" || split.type !== "ByteLevel" || file.normalizer) {
      throw new Error("only a byte_pair tokenizer with a ByteLevel pre-tokenizer and no normalizer is implemented");
    }
    this.addsSpace = split.add_prefix_space;
    this.splitsWords = split.use_regex ?? true;
    this.alphabet = alphabet();
    this.ids = new Map(Object.entries(file.model.vocab));
    // A pair, or in older files one string with a space.
    this.ranks = new Map(file.model.merges.map((merge, rank) => [Array.isArray(merge) ? merge.join(" ") : merge, rank]));
    this.bytes = new Map();
    const byteOf = new Map(this.alphabet.map((character, byte) => [character, byte]));
    const utf8 = new TextEncoder();
    for (const [token, id] of this.ids) {
      const bytes = Array.from(token, (character) => byteOf.get(character));
      this.bytes.set(id, bytes.includes(undefined) ? utf8.encode(token) : bytes);
    }
    const special = Object.values(config.special_tokens).flat();
    for (const { content, id } of file.added_tokens ?? []) {
      this.bytes.set(id, special.includes(content) ? [] : utf8.encode(content));
    }
  }

  encode(text) {
    const content = this.addsSpace && text && !text.startsWith(" ") ? ` ${text}` : text;
    const words = this.splitsWords ? (content.match(WORDS) ?? []) : [content];
    return words.flatMap((word) => this.merge(word));
  }

  // The text of tokens, without special tokens.
  decode(ids) {
    const bytes = ids.flatMap((id) => Array.from(this.bytes.get(id)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  }

  // Joins the neighbors of the lowest rank until no pair is left that has one.
  merge(word) {
    const parts = Array.from(new TextEncoder().encode(word), (byte) => this.alphabet[byte]);
    while (parts.length > 1) {
      let [best, lowest] = [-1, Infinity];
      for (let index = 0; index + 1 < parts.length; index++) {
        const rank = this.ranks.get(`${parts[index]} ${parts[index + 1]}`) ?? Infinity;
        if (rank < lowest) {
          [best, lowest] = [index, rank];
        }
      }
      if (best < 0) {
        break;
      }
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    return parts.map((part) => this.ids.get(part));
  }
}

// The character that stands for each byte: printable bytes for themselves, the others from U+0100 on.
function alphabet() {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => {
    const isPrintable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    return String.fromCodePoint(isPrintable ? byte : next++);
  });
}
