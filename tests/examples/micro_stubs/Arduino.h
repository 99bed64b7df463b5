#pragma once

struct SerialPort {
  void begin(unsigned long);
  void print(const char*);
  void print(unsigned);
  void println(const char*);
  void println(float);
};
extern SerialPort Serial;
void delay(unsigned long);
