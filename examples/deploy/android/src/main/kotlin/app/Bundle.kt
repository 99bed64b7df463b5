// What a bundle's manifest says of its files, and the loop that continues a text.
package app

import java.io.File
import org.json.JSONArray
import org.json.JSONObject

/**
 * A tensor of a signature, as the manifest describes it: sizes are null where dynamic, names of axes where fixed.
 * `nameInFile` is null where the manifest, of an earlier version, does not tell.
 */
class Spec(
    val name: String,
    val dtype: String,
    private val shape: List<Int?>,
    val axes: List<String?>,
    val nameInFile: String?
) {
    /** The shape with the sizes of the dynamic axes. */
    fun shape(sizes: Map<String, Int> = emptyMap()): List<Int> =
        shape.mapIndexed { axis, size -> size ?: sizes.getValue(axes[axis]!!) }
}

/** `sha256` is that of the file. */
class Signature(
    val name: String,
    val file: File,
    val inputs: List<Spec>,
    val outputs: List<Spec>,
    val sha256: String
) {
    /** The tensors of the cache: what a step takes and gives back under one name. */
    val cache: List<Spec> = inputs.filter { input -> outputs.any { it.name == input.name } }
}

/** A folder written by `keras_transformer.export`. `format` is "onnx" or "tflite". */
class Bundle(private val folder: File, format: String) {
    val manifest = JSONObject(File(folder, "manifest.json").readText())
    private val artifact = manifest.getJSONObject("artifacts").getJSONObject(format)
    private val files = artifact.getJSONObject("signatures")

    val signatures: List<String> = files.keys().asSequence().map { it as String }.toList()

    fun has(signature: String) = files.has(signature)

    fun signature(name: String): Signature {
        val record = manifest.getJSONObject("signatures").getJSONObject(name)
        val names = artifact.optJSONObject("names")?.optJSONObject(name)
        val (inputs, outputs) = listOf("inputs", "outputs").map { specs(record.getJSONArray(it), names?.optJSONObject(it)) }
        val path = files.getString(name)
        val sha256 = manifest.getJSONObject("files").getJSONObject(path).getString("sha256")
        return Signature(name, File(folder, path), inputs, outputs, sha256)
    }

    fun tokenizer() = BytePair(File(folder, manifest.getJSONObject("tokenizer").getString("path")))

    /** Pairs of a class and its probability, the most likely first. */
    fun classes(probabilities: FloatArray): List<Pair<String, Float>> {
        // Numbers where the bundle was exported without `metadata={"class_names": [...]}`.
        val names = manifest.getJSONObject("metadata").optJSONArray("class_names")
        return probabilities.mapIndexed { index, value -> Pair(names?.getString(index) ?: "$index", value) }
            .sortedByDescending { it.second }
    }

    /** The most tokens that a prompt and its continuation may have together. */
    fun cacheLength(prompt: List<Int>, count: Int): Int =
        minOf(prompt.size + count, manifest.getJSONObject("generation").optInt("max_length", Int.MAX_VALUE))

    private fun specs(records: JSONArray, names: JSONObject?): List<Spec> = (0 until records.length()).map { place ->
        val record = records.getJSONObject(place)
        val shape = record.getJSONArray("shape")
        val axes = record.getJSONArray("axes")
        Spec(
            record.getString("name"),
            record.getString("dtype"),
            (0 until shape.length()).map { if (shape.isNull(it)) null else shape.getInt(it) },
            (0 until axes.length()).map { if (axes.isNull(it)) null else axes.getString(it) },
            names?.getString(record.getString("name"))
        )
    }
}

/** A language model in a runtime. Both functions return the logits after the last token that they read. */
interface Decoder : AutoCloseable {
    /** The most slots that the cache may have. */
    val mostSlots: Int

    /** Empties the cache, which gets at least `slots` slots. */
    fun start(slots: Int)

    fun prefill(ids: List<Int>): FloatArray

    fun decode(id: Int, index: Int): FloatArray
}

/** The most likely tokens after a prompt, at most `count`; each is handed to `each` as soon as it is known. */
fun generate(bundle: Bundle, decoder: Decoder, prompt: List<Int>, count: Int, each: (Int) -> Unit = {}): List<Int> {
    val length = minOf(bundle.cacheLength(prompt, count), decoder.mostSlots)
    require(prompt.isNotEmpty() && prompt.size < length) { "the prompt is empty or too long" }
    val generation = bundle.manifest.getJSONObject("generation")
    val ends = generation.optJSONArray("end_id")?.let { list -> (0 until list.length()).map { list.getInt(it) } }
        ?: listOf(generation.optInt("end_id", -1))
    val found = mutableListOf<Int>()
    decoder.start(length)
    var logits = decoder.prefill(prompt)
    for (index in prompt.size until length) {
        val best = logits.indices.reduce { a, b -> if (logits[b] > logits[a]) b else a }
        if (best in ends) break
        found.add(best)
        each(best)
        if (index + 1 < length) logits = decoder.decode(best, index)
    }
    return found
}
