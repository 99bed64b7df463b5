// See AndroidApp.kt.
@file:Suppress("UNUSED_PARAMETER")

package android.content.res

import java.io.InputStream

class AssetManager {
    fun list(path: String): Array<String>? = null

    fun open(fileName: String): InputStream = throw UnsupportedOperationException()
}
