// A classifier and a language model on ONNX Runtime.
package app

import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtSession
import java.nio.FloatBuffer
import java.nio.IntBuffer

private val environment: OrtEnvironment by lazy { OrtEnvironment.getEnvironment() }

private fun tensor(shape: List<Int>, values: FloatArray): OnnxTensor =
    OnnxTensor.createTensor(environment, FloatBuffer.wrap(values), shape.map(Int::toLong).toLongArray())

private fun tensor(shape: List<Int>, values: IntArray): OnnxTensor =
    OnnxTensor.createTensor(environment, IntBuffer.wrap(values), shape.map(Int::toLong).toLongArray())

private fun floats(value: OnnxTensor): FloatArray {
    val buffer = value.getFloatBuffer()
    return FloatArray(buffer.remaining()).also { buffer.get(it) }
}

/** One signature, which has an ONNX file of its own. */
private class OnnxSignature(val signature: Signature) : AutoCloseable {
    private val session: OrtSession = environment.createSession(signature.file.path, OrtSession.SessionOptions())

    /** `inputs`: by the names of the manifest. */
    fun run(inputs: Map<String, OnnxTensor>): OrtSession.Result =
        session.run(signature.inputs.associate { Pair(it.nameInFile ?: it.name, inputs.getValue(it.name)) })

    /** An output by the name of the manifest. Whatever its name in the file, outputs have the order of the manifest. */
    fun output(result: OrtSession.Result, name: String): OnnxTensor =
        result.get(signature.outputs.indexOfFirst { it.name == name }) as OnnxTensor

    override fun close() = session.close()
}

class OnnxClassifier(private val bundle: Bundle) : AutoCloseable {
    private val runner = OnnxSignature(bundle.signature("serve"))
    private val input = runner.signature.inputs.single()

    /** Of the input: 1, height, width, channels. */
    val shape = input.shape(mapOf("batch" to 1))

    /** Classes and probabilities of an image, whose pixels are from 0 to 255. */
    fun classify(pixels: FloatArray): List<Pair<String, Float>> = tensor(shape, pixels).use { image ->
        runner.run(mapOf(input.name to image)).use { bundle.classes(floats(runner.output(it, "probabilities"))) }
    }

    override fun close() = runner.close()
}

class OnnxDecoder(bundle: Bundle) : Decoder {
    private val reader = OnnxSignature(bundle.signature("prefill"))
    private val step = OnnxSignature(bundle.signature(if (bundle.has("decode_token")) "decode_token" else "decode"))
    private var cache: Map<String, OnnxTensor> = emptyMap()

    // What owns the tensors of the cache.
    private var owner = AutoCloseable {}

    override val mostSlots = Int.MAX_VALUE

    override fun start(slots: Int) {
        owner.close()
        val empty = step.signature.cache.associate { spec ->
            require(spec.dtype == "float32") { "a cache of ${spec.dtype} is not implemented" }
            val shape = spec.shape(mapOf("batch" to 1, "cache_length" to slots))
            spec.name to tensor(shape, FloatArray(shape.reduce(Int::times)))
        }
        cache = empty
        owner = AutoCloseable { empty.values.forEach(OnnxTensor::close) }
    }

    override fun prefill(ids: List<Int>): FloatArray = read(reader, "lengths", ids, ids.size)

    override fun decode(id: Int, index: Int): FloatArray = read(step, "cache_index", listOf(id), index)

    private fun read(runner: OnnxSignature, indexName: String, ids: List<Int>, index: Int): FloatArray {
        val given = mapOf(
            "token_ids" to tensor(listOf(1, ids.size), ids.toIntArray()),
            indexName to tensor(listOf(1), intArrayOf(index))
        )
        val result = runner.run(given + cache)
        given.values.forEach(OnnxTensor::close)
        owner.close()
        owner = result
        cache = cache.mapValues { runner.output(result, it.key) }
        return floats(runner.output(result, "logits"))
    }

    override fun close() {
        owner.close()
        reader.close()
        step.close()
    }
}
