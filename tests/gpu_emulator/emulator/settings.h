// emulator/settings.h - TESSERA_GPU_EMULATOR, for programs that a test starts. Internal to the emulator.
#pragma once

#include "emulator/runtime.h"

namespace emulator {

// The default Config, changed as the variable says; a mistake in it ends the program with a sentence.
Config settings_from_environment();

}  // namespace emulator
