// The classes of com.google.ai.edge.litert (LiteRT 2) that examples/deploy/android calls, with their published signatures.
// A run is computed by the process at the other end of `test.Bridge`.
@file:Suppress("UNUSED_PARAMETER")

package com.google.ai.edge.litert

import java.io.File
import test.Bridge

enum class Accelerator { NONE, CPU, GPU, NPU }

abstract class JniHandle internal constructor() : AutoCloseable {
    private var isClosed = false

    protected fun assertNotDestroyed() = check(!isClosed) { "The handle has been destroyed." }

    final override fun close() {
        isClosed = true
    }
}

class TensorBuffer internal constructor() : JniHandle() {
    internal var data: Any = FloatArray(0)
        get() {
            assertNotDestroyed()
            return field
        }
        set(value) {
            assertNotDestroyed()
            field = value
        }

    fun writeInt(data: IntArray) { this.data = data }

    fun writeFloat(data: FloatArray) { this.data = data }

    fun writeInt8(data: ByteArray) { this.data = data }

    fun readFloat(): FloatArray = data as FloatArray
}

class CompiledModel private constructor(private val path: String) : JniHandle() {
    data class CpuOptions(
        val numThreads: Int? = null,
        val xnnPackFlags: Int? = null,
        val xnnPackWeightCachePath: String? = null
    )

    class Options constructor(internal val accelerators: Set<Accelerator>) {
        constructor(vararg accelerators: Accelerator) : this(setOf(*accelerators))

        var cpuOptions: CpuOptions? = null

        companion object {
            val CPU = Options(Accelerator.CPU)
        }
    }

    fun createInputBuffer(inputName: String, signature: String = "") = TensorBuffer()

    fun createOutputBuffer(outputName: String, signature: String = "") = TensorBuffer()

    fun run(inputs: Map<String, TensorBuffer>, outputs: Map<String, TensorBuffer>, signature: String = "") {
        assertNotDestroyed()
        check((inputs.values + outputs.values).toSet().size == inputs.size + outputs.size) { "buffers are shared" }
        val found = Bridge.call(path, signature, inputs.mapValues { it.value.data })
        outputs.forEach { (name, buffer) -> buffer.data = found.getValue(name) }
    }

    companion object {
        fun create(filePath: String, options: Options = Options.CPU): CompiledModel {
            options.cpuOptions?.xnnPackWeightCachePath?.let { File(it).writeText("packed") }
            return CompiledModel(filePath)
        }
    }
}
