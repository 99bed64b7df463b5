// A screen that classifies an image and continues a text. The bundles are folders of the app: drag `classifier` and
// `decoder` into the Xcode project as folder references.

import OnnxRuntimeBindings
import PhotosUI
import SwiftUI

/// The models, which are called from one thread at a time.
actor Models {
  private let classifier: OnnxClassifier
  private let language: ModelBundle
  private let tokenizer: BytePair
  private let decoder: OnnxDecoder

  init() throws {
    let environment = try ORTEnv(loggingLevel: .warning)
    classifier = try OnnxClassifier(Models.bundle("classifier"), environment: environment)
    language = try Models.bundle("decoder")
    tokenizer = try language.tokenizer()
    decoder = try OnnxDecoder(language, environment: environment)
  }

  private static func bundle(_ name: String) throws -> ModelBundle {
    guard let folder = Bundle.main.url(forResource: name, withExtension: nil) else {
      throw RecipeError("the app has no folder \(name)")
    }
    return try ModelBundle(folder: folder, format: "onnx")
  }

  func classify(_ image: UIImage) throws -> String {
    let classes = try classifier.classify(pixels(of: image, shape: classifier.shape))
    return classes.prefix(3).map { "\($0.name): \(Int(100 * $0.probability)) %" }.joined(separator: "\n")
  }

  /// Hands the text over after each token.
  func continued(_ text: String, count: Int, show: @escaping @Sendable (String) -> Void) throws {
    let prompt = try tokenizer.encode(text)
    var ids: [Int32] = []
    _ = try generate(language, decoder, prompt: prompt, count: count) { id in
      ids.append(id)
      show(text + tokenizer.decode(ids))
    }
  }
}

/// Pixels from 0 to 255 in the size that the model takes: 1, height, width, channels.
func pixels(of image: UIImage, shape: [Int]) throws -> [Float] {
  let (height, width, channels) = (shape[1], shape[2], shape[3])
  var bytes = [UInt8](repeating: 0, count: 4 * height * width)
  let drawn = bytes.withUnsafeMutableBytes { memory -> Bool in
    guard let source = image.cgImage,
      let context = CGContext(
        data: memory.baseAddress, width: width, height: height, bitsPerComponent: 8, bytesPerRow: 4 * width,
        space: CGColorSpaceCreateDeviceRGB(), bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
    else { return false }
    context.draw(source, in: CGRect(x: 0, y: 0, width: width, height: height))
    return true
  }
  guard drawn else { throw RecipeError("the image cannot be drawn") }
  return (0..<(height * width)).flatMap { place -> [Float] in
    let (red, green, blue) = (Float(bytes[4 * place]), Float(bytes[4 * place + 1]), Float(bytes[4 * place + 2]))
    return channels == 3 ? [red, green, blue] : [0.299 * red + 0.587 * green + 0.114 * blue]
  }
}

struct ContentView: View {
  @State private var models: Models?
  @State private var picked: PhotosPickerItem?
  @State private var answer = ""
  @State private var text = "The "

  var body: some View {
    Form {
      Section("Classify an image") {
        PhotosPicker("Choose an image", selection: $picked, matching: .images)
        Text(answer)
      }
      Section("Continue a text") {
        TextField("Text", text: $text, axis: .vertical)
        Button("Continue") {
          act { models in
            try await models.continued(text, count: 40) { now in Task { @MainActor in text = now } }
          }
        }
      }
    }
    .onChange(of: picked) { item in
      act { models in
        guard let data = try await item?.loadTransferable(type: Data.self), let image = UIImage(data: data)
        else { return }
        answer = try await models.classify(image)
      }
    }
  }

  /// Does something with the models, which are opened before the first use, and shows errors.
  private func act(_ action: @escaping (Models) async throws -> Void) {
    Task {
      do {
        let found = try models ?? Models()
        models = found
        try await action(found)
      } catch {
        answer = "\(error)"
      }
    }
  }
}

@main
struct TransformersApp: App {
  var body: some Scene {
    WindowGroup { ContentView() }
  }
}
