// A screen that classifies an image and continues a text.
package app

import android.app.Activity
import android.content.Intent
import android.content.res.AssetManager
import android.graphics.Bitmap
import android.graphics.BitmapFactory
import android.os.Bundle as State
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import java.io.File
import java.util.concurrent.Executors

private const val PICK = 1
private const val COUNT = 40

class MainActivity : Activity() {
    // Models are not called from several threads at once, nor on the thread of the screen.
    private val worker = Executors.newSingleThreadExecutor()
    private val classifier by lazy { LiteRtClassifier(Bundle(unpacked("classifier"), "tflite")) }
    private val language by lazy { Bundle(unpacked("decoder"), "tflite") }
    private val tokenizer by lazy { language.tokenizer() }
    private val decoder by lazy { LiteRtDecoder(language) }
    private lateinit var answer: TextView
    private lateinit var text: EditText

    override fun onCreate(savedInstanceState: State?) {
        super.onCreate(savedInstanceState)
        answer = TextView(this)
        text = EditText(this)
        val column = LinearLayout(this)
        column.orientation = LinearLayout.VERTICAL
        column.addView(button("Classify an image") { pickImage() })
        column.addView(answer)
        column.addView(text)
        column.addView(button("Continue the text") { continueText() })
        setContentView(column)
    }

    private fun button(label: String, action: () -> Unit): Button {
        val button = Button(this)
        button.text = label
        button.setOnClickListener { action() }
        return button
    }

    private fun pickImage() = startActivityForResult(Intent(Intent.ACTION_GET_CONTENT).setType("image/*"), PICK)

    override fun onActivityResult(requestCode: Int, resultCode: Int, data: Intent?) {
        super.onActivityResult(requestCode, resultCode, data)
        val address = data?.data ?: return
        worker.execute {
            val image = contentResolver.openInputStream(address).use { BitmapFactory.decodeStream(it) }
            val classes = classifier.classify(pixelsOf(image, classifier.shape)).take(3)
            runOnUiThread { answer.text = classes.joinToString("\n") { "${it.first}: ${(100 * it.second).toInt()} %" } }
        }
    }

    private fun continueText() {
        val before = text.text.toString()
        worker.execute {
            val prompt = tokenizer.encode(before)
            val ids = mutableListOf<Int>()
            generate(language, decoder, prompt, COUNT) { id ->
                ids.add(id)
                val after = before + tokenizer.decode(ids)
                runOnUiThread { text.setText(after) }
            }
        }
    }

    /** Copies a bundle from the assets of the app to a folder, since ONNX Runtime and the tokenizer read files. */
    private fun unpacked(name: String): File = File(filesDir, name).also { copy(assets, "bundles/$name", it) }
}

private fun copy(assets: AssetManager, path: String, target: File) {
    val names = assets.list(path) ?: emptyArray()
    if (names.isEmpty()) {
        target.parentFile?.mkdirs()
        assets.open(path).use { source -> target.outputStream().use { source.copyTo(it) } }
    }
    for (name in names) copy(assets, "$path/$name", File(target, name))
}

/** Pixels from 0 to 255 in the size that the model takes: 1, height, width, channels. */
fun pixelsOf(image: Bitmap, shape: List<Int>): FloatArray {
    val (_, height, width, channels) = shape
    val colors = IntArray(height * width)
    Bitmap.createScaledBitmap(image, width, height, true).getPixels(colors, 0, width, 0, 0, width, height)
    val pixels = FloatArray(height * width * channels)
    for ((place, color) in colors.withIndex()) {
        val red = (color shr 16 and 0xFF).toFloat()
        val green = (color shr 8 and 0xFF).toFloat()
        val blue = (color and 0xFF).toFloat()
        if (channels == 1) {
            pixels[place] = 0.299f * red + 0.587f * green + 0.114f * blue
        } else {
            floatArrayOf(red, green, blue).copyInto(pixels, 3 * place)
        }
    }
    return pixels
}
