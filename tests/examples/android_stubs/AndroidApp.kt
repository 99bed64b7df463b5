// The classes of Android that MainActivity.kt calls; it is compiled, and not run. Properties stand for getters and setters.
@file:Suppress("UNUSED_PARAMETER")

package android.app

import android.content.Context
import android.content.Intent
import android.os.Bundle
import android.view.View

open class Activity : Context() {
    protected open fun onCreate(savedInstanceState: Bundle?) = Unit

    protected open fun onActivityResult(requestCode: Int, resultCode: Int, data: Intent?) = Unit

    fun setContentView(view: View) = Unit

    fun startActivityForResult(intent: Intent, requestCode: Int) = Unit

    fun runOnUiThread(action: () -> Unit) = Unit
}
