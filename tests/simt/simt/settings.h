// simt/settings.h - TESSERA_SIMT, for programs that a test starts. For the emulator alone.
#pragma once

#include "simt/runtime.h"

namespace simt {

// The start values of Config, changed as the variable says; a mistake in it ends the program with a sentence.
Config settings_from_environment();

}  // namespace simt
