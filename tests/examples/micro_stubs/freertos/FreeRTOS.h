#pragma once

#define pdMS_TO_TICKS(milliseconds) (milliseconds)
