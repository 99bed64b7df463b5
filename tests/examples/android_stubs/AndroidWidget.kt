// See AndroidApp.kt.
@file:Suppress("UNUSED_PARAMETER")

package android.widget

import android.content.Context
import android.view.View

open class TextView(context: Context) : View() {
    open var text: CharSequence = ""
}

class Button(context: Context) : TextView(context)

class EditText(context: Context) : View() {
    val text: CharSequence = ""

    fun setText(text: CharSequence) = Unit
}

class LinearLayout(context: Context) : View() {
    var orientation: Int = 0

    fun addView(child: View) = Unit

    companion object {
        const val VERTICAL = 1
    }
}
