#include <tessera/sdk/plugin.h>

#include "virtual_table.h"

TESSERA_PLUGIN("virtual_table", "0.1.0",
               tessera::sdk::component<extras::VirtualTableKernel>(
                   {.id = "virtual_table",
                    .version = "0.1.0",
                    .about = "rows on demand beyond memory: in files, a cache in another kernel's tables"}));
