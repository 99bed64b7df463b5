// The module of an app. Copy the bundles to src/main/assets/bundles/classifier and src/main/assets/bundles/decoder.
plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "app"
    compileSdk = 36
    defaultConfig {
        applicationId = "com.example.transformers"
        minSdk = 24
        targetSdk = 36
    }
    // The files are read as they are.
    androidResources { noCompress += listOf("tflite", "onnx", "weights") }
}

dependencies {
    implementation("com.google.ai.edge.litert:litert:2.2.0")
    // Only for Onnx.kt.
    implementation("com.microsoft.onnxruntime:onnxruntime-android:1.23.0")
}
