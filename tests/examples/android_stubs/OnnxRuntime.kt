// The classes of ai.onnxruntime that examples/deploy/android calls, with their published signatures. A run is computed by the
// process at the other end of `test.Bridge`.
@file:Suppress("UNUSED_PARAMETER")

package ai.onnxruntime

import java.nio.FloatBuffer
import java.nio.IntBuffer
import test.Bridge

interface OnnxValue : AutoCloseable {
    override fun close()
}

interface OnnxTensorLike : OnnxValue

class OnnxTensor private constructor(data: Any) : OnnxTensorLike {
    private var isClosed = false
    internal val data: Any = data
        get() {
            check(!isClosed) { "Trying to use a closed OnnxTensor" }
            return field
        }

    fun getFloatBuffer(): FloatBuffer = FloatBuffer.wrap(data as FloatArray)

    override fun close() {
        isClosed = true
    }

    companion object {
        internal fun of(data: Any) = OnnxTensor(data)

        @JvmStatic
        fun createTensor(env: OrtEnvironment, data: FloatBuffer, shape: LongArray): OnnxTensor = OnnxTensor(data.array())

        @JvmStatic
        fun createTensor(env: OrtEnvironment, data: IntBuffer, shape: LongArray): OnnxTensor = OnnxTensor(data.array())
    }
}

class OrtEnvironment private constructor() : AutoCloseable {
    fun createSession(modelPath: String, options: OrtSession.SessionOptions): OrtSession = OrtSession(modelPath)

    override fun close() = Unit

    companion object {
        private val one = OrtEnvironment()

        @JvmStatic
        fun getEnvironment(): OrtEnvironment = one
    }
}

class OrtSession internal constructor(private val path: String) : AutoCloseable {
    class SessionOptions : AutoCloseable {
        override fun close() = Unit
    }

    class Result internal constructor(private val values: List<OnnxTensor>) : AutoCloseable {
        fun get(index: Int): OnnxValue = values[index]

        override fun close() = values.forEach { it.close() }
    }

    fun run(inputs: Map<String, OnnxTensorLike>): Result =
        Result(Bridge.call(path, "", inputs.mapValues { (it.value as OnnxTensor).data }).values.map { OnnxTensor.of(it) })

    override fun close() = Unit
}
