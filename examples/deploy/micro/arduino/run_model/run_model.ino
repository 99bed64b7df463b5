// Runs the model once a second, on an Arduino with a library of TensorFlow Lite for Microcontrollers.
// Copy model.h and model.cc of the bundle, and common/micro_model.h, into this folder.
#include <Arduino.h>

#include "micro_model.h"

static MicroModel micro;

// Your sensor: a number of the first input.
static float ReadSensor(std::size_t index) { return static_cast<float>(index % 2); }

void setup() {
  Serial.begin(115200);
  while (!micro.Begin()) {
    Serial.println("the model does not start");
    delay(1000);
  }
}

void loop() {
  for (std::size_t index = 0; index < model::kInputs[0].count; ++index) micro.Set(0, index, ReadSensor(index));
  if (micro.Invoke()) {
    const std::size_t best = micro.Largest(0);
    Serial.print(static_cast<unsigned>(best));
    Serial.print(": ");
    Serial.println(micro.Get(0, best));
  }
  delay(1000);
}
