// Runs the model once a second, on an ESP32 with ESP-IDF.
#include <cstdio>

#include "freertos/FreeRTOS.h"
#include "freertos/task.h"
#include "micro_model.h"

// Your sensor: a number of the first input.
static float ReadSensor(std::size_t index) { return static_cast<float>(index % 2); }

extern "C" void app_main() {
  static MicroModel micro;
  if (!micro.Begin()) {
    std::printf("the model does not start\n");
    return;
  }
  while (true) {
    for (std::size_t index = 0; index < model::kInputs[0].count; ++index) micro.Set(0, index, ReadSensor(index));
    if (micro.Invoke()) {
      const std::size_t best = micro.Largest(0);
      std::printf("class %u: %f\n", static_cast<unsigned>(best), static_cast<double>(micro.Get(0, best)));
    }
    vTaskDelay(pdMS_TO_TICKS(1000));
  }
}
