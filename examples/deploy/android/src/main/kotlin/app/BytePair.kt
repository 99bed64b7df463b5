// Byte-level byte-pair encoding from the tokenizer of a bundle, as `keras_transformer.text.BytePair` encodes.
package app

import java.io.ByteArrayOutputStream
import java.io.File
import org.json.JSONArray
import org.json.JSONObject

class BytePair(folder: File) {
    private val config = JSONObject(File(folder, "tokenizer_config.json").readText())
    private val content = JSONObject(File(folder, "tokenizer.json").readText())
    private val split = content.getJSONObject("pre_tokenizer")
    private val ids = mutableMapOf<String, Int>()
    private val bytes = mutableMapOf<Int, ByteArray>()
    private val ranks = mutableMapOf<Pair<String, String>, Int>()

    init {
        val isKnown = config.getString("kind") == "byte_pair" && split.getString("type") == "ByteLevel"
        require(isKnown && content.isNull("normalizer")) {
            "only a byte_pair tokenizer with a ByteLevel pre-tokenizer and no normalizer is implemented"
        }
        val model = content.getJSONObject("model")
        val vocabulary = model.getJSONObject("vocab")
        for (key in vocabulary.keys()) {
            val token = key as String
            ids[token] = vocabulary.getInt(token)
            val values = token.map { BYTES[it.toString()] }
            bytes[vocabulary.getInt(token)] =
                if (null in values) token.toByteArray() else ByteArray(values.size) { values[it]!!.toByte() }
        }
        val special = specialTokens()
        val added = content.optJSONArray("added_tokens") ?: JSONArray()
        for (place in 0 until added.length()) {
            val token = added.getJSONObject(place)
            val name = token.getString("content")
            bytes[token.getInt("id")] = if (name in special) ByteArray(0) else name.toByteArray()
        }
        val merges = model.getJSONArray("merges")
        for (rank in 0 until merges.length()) {
            // A pair, or in older files one string with a space.
            val pair = merges.optJSONArray(rank)
            val parts = pair?.let { listOf(it.getString(0), it.getString(1)) } ?: merges.getString(rank).split(" ")
            ranks[Pair(parts[0], parts[1])] = rank
        }
    }

    /** Those of a role, such as "end", may be several. */
    private fun specialTokens(): List<String> {
        val roles = config.getJSONObject("special_tokens")
        return roles.keys().asSequence().toList().flatMap { role ->
            val several = roles.optJSONArray(role as String) ?: JSONArray().put(roles.getString(role))
            (0 until several.length()).map { several.getString(it) }
        }
    }

    fun encode(text: String): List<Int> {
        val addsSpace = split.optBoolean("add_prefix_space") && text.isNotEmpty() && !text.startsWith(" ")
        val whole = if (addsSpace) " $text" else text
        val words = if (split.optBoolean("use_regex", true)) WORDS.findAll(whole).map { it.value } else sequenceOf(whole)
        return words.flatMap { merge(it).asSequence() }.toList()
    }

    /** The text of tokens, without special tokens. */
    fun decode(tokens: List<Int>): String {
        val found = ByteArrayOutputStream()
        for (id in tokens) found.write(bytes.getValue(id))
        return found.toString("UTF-8")
    }

    /** Joins the neighbors of the lowest rank until no pair is left that has one. */
    private fun merge(word: String): List<Int> {
        val parts = word.toByteArray().map { ALPHABET[it.toInt() and 0xFF] }.toMutableList()
        while (parts.size > 1) {
            var best = -1
            var lowest = Int.MAX_VALUE
            for (place in 0 until parts.size - 1) {
                val rank = ranks[Pair(parts[place], parts[place + 1])] ?: continue
                if (rank < lowest) {
                    best = place
                    lowest = rank
                }
            }
            if (best < 0) break
            parts[best] = parts[best] + parts.removeAt(best + 1)
        }
        return parts.map { ids.getValue(it) }
    }

    private companion object {
        // GPT-2's pattern. The spaces are those of Unicode, which \s of a Pattern is not.
        const val SPACE = "\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
        val WORDS = Regex(
            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^$SPACE\\p{L}\\p{N}]+|[$SPACE]+(?![^$SPACE])|[$SPACE]+"
        )

        // The character that stands for each byte: printable bytes for themselves, the others from U+0100 on.
        val ALPHABET: List<String> = alphabet()
        val BYTES: Map<String, Int> = ALPHABET.withIndex().associate { it.value to it.index }

        fun alphabet(): List<String> {
            var next = 0x100
            return (0..255).map { byte ->
                val isPrintable = byte in 0x21..0x7E || (byte > 0xA0 && byte != 0xAD)
                (if (isPrintable) byte else next++).toChar().toString()
            }
        }
    }
}
