// Tokenizers of the page: one token a character, or parts of words.

import { BytePair } from "./byte_pair.js";

class Characters {
  constructor({ characters, unknown }) {
    this.ids = new Map(characters);
    this.letters = new Map(characters.map(([letter, id]) => [id, letter]));
    this.unknown = unknown;
  }

  encode(text) {
    return Array.from(text, (letter) => this.ids.get(letter) ?? this.unknown);
  }

  decode(ids) {
    return ids.map((id) => this.letters.get(id) ?? "").join("");
  }
}

// The tokenizer of a record of models.json, and what it calls its tokens.
export function tokenizerOf({ characters, unknown, config, file }) {
  return characters
    ? { tokenizer: new Characters({ characters, unknown }), unit: "characters" }
    : { tokenizer: new BytePair(config, file), unit: "parts of words" };
}
