// See AndroidApp.kt.
package android.os

class Bundle
