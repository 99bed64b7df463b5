// See AndroidApp.kt.
@file:Suppress("UNUSED_PARAMETER")

package android.content

import android.content.res.AssetManager
import android.net.Uri
import java.io.File
import java.io.InputStream

open class Context {
    val assets: AssetManager get() = throw UnsupportedOperationException()
    val filesDir: File get() = throw UnsupportedOperationException()
    val contentResolver: ContentResolver get() = throw UnsupportedOperationException()
}

open class ContentResolver {
    fun openInputStream(uri: Uri): InputStream? = null
}

class Intent(action: String) {
    val data: Uri? = null

    fun setType(type: String): Intent = this

    companion object {
        const val ACTION_GET_CONTENT = "android.intent.action.GET_CONTENT"
    }
}
