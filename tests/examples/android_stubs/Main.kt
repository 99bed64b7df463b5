// Runs the recipe on a computer: `classify RUNTIME BUNDLE IMAGE.pgm`, `generate RUNTIME BUNDLE COUNT TEXT ...` or
// `tokens FOLDER`, which reads a JSON list of texts.
package test

import app.Bundle
import app.BytePair
import app.Decoder
import app.LiteRtClassifier
import app.LiteRtDecoder
import app.OnnxClassifier
import app.OnnxDecoder
import app.generate
import java.io.File
import org.json.JSONArray
import org.json.JSONObject

/** Asks the process that started this one to run a signature: a line of JSON each way. */
object Bridge {
    fun call(file: String, signature: String, inputs: Map<String, Any>): Map<String, FloatArray> {
        val record = JSONObject().put("file", file).put("signature", signature)
        val arrays = JSONObject()
        for ((name, data) in inputs) {
            val values: List<Any> = if (data is IntArray) data.toList() else (data as FloatArray).map { it.toDouble() }
            arrays.put(name, JSONArray(values))
        }
        println(record.put("inputs", arrays))
        val outputs = JSONArray(readLine()!!)
        return (0 until outputs.length()).associate { place ->
            val (name, values) = outputs.getJSONArray(place).let { Pair(it.getString(0), it.getJSONArray(1)) }
            name to FloatArray(values.length()) { values.getDouble(it).toFloat() }
        }
    }
}

fun main(words: Array<String>) {
    val answer: Any = when (words[0]) {
        "classify" -> {
            val bundle = Bundle(File(words[2]), words[1])
            val classify = if (words[1] == "onnx") OnnxClassifier(bundle)::classify else LiteRtClassifier(bundle)::classify
            val bytes = File(words[3]).readBytes()
            val pixels = bytes.takeLast(64).map { (it.toInt() and 0xFF).toFloat() }.toFloatArray()
            JSONArray(classify(pixels).map { JSONArray(listOf(it.first, it.second.toDouble())) })
        }
        "generate" -> {
            val bundle = Bundle(File(words[2]), words[1])
            val tokenizer = bundle.tokenizer()
            val decoder: Decoder = if (words[1] == "onnx") OnnxDecoder(bundle) else LiteRtDecoder(bundle)
            val results = words.drop(4).map { JSONArray(generate(bundle, decoder, tokenizer.encode(it), words[3].toInt())) }
            decoder.close()
            JSONArray(results)
        }
        else -> {
            val tokenizer = BytePair(File(words[1]))
            val texts = JSONArray(readLine()!!)
            JSONArray((0 until texts.length()).map { texts.getString(it) }.map { text ->
                val ids = tokenizer.encode(text)
                JSONArray(listOf(JSONArray(ids), tokenizer.decode(ids) == text))
            })
        }
    }
    println(JSONObject().put("answer", answer))
}
