// emulator/settings.h - TESSERA_GPU_EMULATOR, for programs that a test starts. For the emulator alone.
#pragma once

#include "emulator/runtime.h"

namespace emulator {

// The start values of Config, changed as the variable says; a mistake in it ends the program with a sentence.
Config settings_from_environment();

}  // namespace emulator
