#include <tessera/sdk/plugin.h>

#include "tiered.h"

TESSERA_PLUGIN("tiered", "0.1.0",
               tessera::sdk::component<extras::Tiered>({.id = "tiered",
                                                        .version = "0.1.0",
                                                        .about = "tables beyond memory: rows in files, a cache "
                                                                 "in another kernel's tables"}));
