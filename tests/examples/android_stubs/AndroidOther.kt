// See AndroidApp.kt.
package android.net

class Uri
