// See AndroidApp.kt.
@file:Suppress("UNUSED_PARAMETER")

package android.view

open class View {
    fun setOnClickListener(listener: (View) -> Unit) = Unit
}
