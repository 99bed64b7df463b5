// A screen that draws the classes of a sample image and continues a text.

import { useEffect, useRef, useState } from "react";
import { Button, SafeAreaView, Text, TextInput } from "react-native";

import { Models } from "./models.js";

const COUNT = 40;

export default function App() {
  const models = useRef(null);
  const [state, setState] = useState("Loading …");
  const [text, setText] = useState("The ");

  async function act(action) {
    try {
      models.current ??= await Models.open();
      await action(models.current);
    } catch (error) {
      setState(`Error: ${error.message}`);
    }
  }

  useEffect(() => {
    act(async (opened) => {
      // Pixels from 0 to 255: those of a camera frame or a decoded image in a real app.
      const [, height, width, channels] = opened.shape;
      const pixels = new Float32Array(height * width * channels).map((_, place) => (place * 37) % 256);
      const classes = await opened.classify(pixels);
      setState(classes.slice(0, 3).map(([name, probability]) => `${name}: ${(100 * probability).toFixed(1)} %`).join("\n"));
    });
  }, []);

  const continueText = () =>
    act(async (opened) => {
      for await (const now of opened.continueText(text, COUNT)) {
        setText(now);
      }
    });

  return (
    <SafeAreaView>
      <Text>{state}</Text>
      <TextInput multiline value={text} onChangeText={setText} />
      <Button title="Continue" onPress={continueText} />
    </SafeAreaView>
  );
}
