// See AndroidApp.kt.
@file:Suppress("UNUSED_PARAMETER")

package android.graphics

import java.io.InputStream

class Bitmap {
    fun getPixels(pixels: IntArray, offset: Int, stride: Int, x: Int, y: Int, width: Int, height: Int) = Unit

    companion object {
        fun createScaledBitmap(src: Bitmap, dstWidth: Int, dstHeight: Int, filter: Boolean): Bitmap = src
    }
}

object BitmapFactory {
    fun decodeStream(stream: InputStream?): Bitmap = Bitmap()
}
