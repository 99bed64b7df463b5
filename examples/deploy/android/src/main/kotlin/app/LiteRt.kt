// A classifier and a language model on LiteRT's CompiledModel.
package app

import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.ai.edge.litert.TensorBuffer
import java.io.File

val CPU = listOf(Accelerator.CPU)

/** LiteRT runs on the CPU what the GPU does not take. */
val GPU = listOf(Accelerator.GPU, Accelerator.CPU)

/**
 * Opens a file. On the CPU, its weights are packed once, into a file beside it, which is mapped from then on. It is renamed
 * when it is complete, so that an app that ends early leaves no part of it.
 */
private fun open(signature: Signature, accelerators: List<Accelerator>): CompiledModel {
    if (accelerators != CPU) return open(signature.file, accelerators, null)
    val weights = File(signature.file.parentFile, "${signature.sha256.take(32)}.xnnpack")
    if (!weights.exists()) {
        val partial = File("${weights.path}.partial")
        partial.delete()
        open(signature.file, accelerators, partial).close()
        partial.renameTo(weights)
    }
    return open(signature.file, accelerators, weights)
}

private fun open(file: File, accelerators: List<Accelerator>, weights: File?): CompiledModel {
    val options = CompiledModel.Options(*accelerators.toTypedArray())
    if (weights != null) options.cpuOptions = CompiledModel.CpuOptions(xnnPackWeightCachePath = weights.path)
    return CompiledModel.create(file.path, options)
}

/** One signature with its buffers, by the names of the manifest. */
private class LiteRtSignature(private val model: CompiledModel, val signature: Signature) : AutoCloseable {
    val inputs = mutableMapOf<String, TensorBuffer>()
    val outputs = mutableMapOf<String, TensorBuffer>()

    init {
        for (spec in signature.inputs) inputs[spec.name] = model.createInputBuffer(inFile(spec), signature.name)
        for (spec in signature.outputs) outputs[spec.name] = model.createOutputBuffer(inFile(spec), signature.name)
    }

    private fun inFile(spec: Spec) = spec.nameInFile ?: spec.name

    fun run() = model.run(
        signature.inputs.associate { inFile(it) to inputs.getValue(it.name) },
        signature.outputs.associate { inFile(it) to outputs.getValue(it.name) },
        signature.name
    )

    override fun close() = (inputs.values + outputs.values).forEach(TensorBuffer::close)
}

class LiteRtClassifier(private val bundle: Bundle, accelerators: List<Accelerator> = CPU) : AutoCloseable {
    // A signature of fixed shapes where the bundle has one, from `export(..., options=ExportOptions(static={"batch": 1}))`.
    private val signature = bundle.signature(if (bundle.has("serve_1")) "serve_1" else "serve")
    private val model = open(signature, accelerators)
    private val runner = LiteRtSignature(model, signature)
    private val input = signature.inputs.single()

    /** Of the input: 1, height, width, channels. */
    val shape = input.shape(mapOf("batch" to 1))

    /** Classes and probabilities of an image, whose pixels are from 0 to 255. */
    fun classify(pixels: FloatArray): List<Pair<String, Float>> {
        runner.inputs.getValue(input.name).writeFloat(pixels)
        runner.run()
        return bundle.classes(runner.outputs.getValue("probabilities").readFloat())
    }

    override fun close() {
        runner.close()
        model.close()
    }
}

/** The signatures of fixed shapes: `prefill_32`, `prefill_128`, ... read prompts, and `decode_1` one token. */
class LiteRtDecoder(private val bundle: Bundle, accelerators: List<Accelerator> = CPU) : Decoder {
    private val signature = bundle.signature("decode_1")
    private val model = open(signature, accelerators)
    private val step = LiteRtSignature(model, signature)
    private val sizes = sizesOf("prefill")
    private val chunk = sizesOf("extend").firstOrNull() ?: Int.MAX_VALUE

    private fun sizesOf(kind: String) =
        bundle.signatures.mapNotNull { Regex("${kind}_(\\d+)").matchEntire(it)?.groupValues?.get(1)?.toInt() }.sorted()

    override val mostSlots: Int
        get() {
            val (spec, axis) = bundle.signature("prefill").cache.map { Pair(it, it.axes.indexOf("cache_length")) }
                .firstOrNull { it.second >= 0 } ?: return Int.MAX_VALUE
            return signature.cache.first { it.name == spec.name }.shape()[axis]
        }

    override fun start(slots: Int) {
        for (spec in signature.cache) {
            val count = spec.shape().reduce(Int::times)
            val buffer = step.inputs.getValue(spec.name)
            when (spec.dtype) {
                "float32" -> buffer.writeFloat(FloatArray(count))
                "int8" -> buffer.writeInt8(ByteArray(count))
                else -> throw IllegalArgumentException("a cache of ${spec.dtype} is not implemented")
            }
        }
    }

    /**
     * Reads as much as the smallest signature that holds the prompt, or the largest, takes; further tokens in chunks and one
     * by one.
     */
    override fun prefill(ids: List<Int>): FloatArray {
        val size = sizes.firstOrNull { it >= ids.size } ?: sizes.lastOrNull() ?: 0
        val first = minOf(size, ids.size)
        var logits = FloatArray(0)
        if (size > 0) {
            LiteRtSignature(model, bundle.signature("prefill_$size")).use { reader ->
                reader.inputs.getValue("token_ids").writeInt(IntArray(size) { if (it < first) ids[it] else 0 })
                logits = read(reader, "lengths", first)
            }
        }
        var index = first
        while (ids.size - index >= chunk) {
            LiteRtSignature(model, bundle.signature("extend_$chunk")).use { reader ->
                reader.inputs.getValue("token_ids").writeInt(ids.subList(index, index + chunk).toIntArray())
                logits = read(reader, "cache_index", index)
            }
            index += chunk
        }
        while (index < ids.size) logits = decode(ids[index], index++)
        // A chunk has the logits after each of its tokens.
        return logits.copyOfRange(logits.size - signature.outputs.first { it.name == "logits" }.shape().last(), logits.size)
    }

    override fun decode(id: Int, index: Int): FloatArray {
        step.inputs.getValue("token_ids").writeInt(intArrayOf(id))
        return read(step, "cache_index", index)
    }

    /** The cache changes hands instead of being copied: what a run wrote is what the next run reads. */
    private fun read(runner: LiteRtSignature, indexName: String, index: Int): FloatArray {
        runner.inputs.getValue(indexName).writeInt(intArrayOf(index))
        val names = signature.cache.map { it.name }
        for (name in names) {
            if (runner !== step) runner.inputs.getValue(name).close()
            runner.inputs[name] = step.inputs.getValue(name)
        }
        runner.run()
        for (name in names) {
            val written = runner.outputs.getValue(name)
            runner.outputs[name] = step.inputs.getValue(name)
            step.inputs[name] = written
        }
        return runner.outputs.getValue("logits").readFloat()
    }

    override fun close() {
        step.close()
        model.close()
    }
}
