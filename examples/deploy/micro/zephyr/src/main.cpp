// Runs the model once a second, on a board with Zephyr.
#include <zephyr/kernel.h>

#include "micro_model.h"

// Your sensor: a number of the first input.
static float ReadSensor(std::size_t index) { return static_cast<float>(index % 2); }

int main() {
  static MicroModel micro;
  if (!micro.Begin()) {
    printk("the model does not start\n");
    return 1;
  }
  while (true) {
    for (std::size_t index = 0; index < model::kInputs[0].count; ++index) micro.Set(0, index, ReadSensor(index));
    if (micro.Invoke()) {
      const std::size_t best = micro.Largest(0);
      printk("class %u: %d of 1000\n", static_cast<unsigned>(best), static_cast<int>(1000 * micro.Get(0, best)));
    }
    k_msleep(1000);
  }
}
