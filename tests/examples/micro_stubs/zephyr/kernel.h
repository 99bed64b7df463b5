#pragma once

void printk(const char* format, ...);
int k_msleep(int milliseconds);
