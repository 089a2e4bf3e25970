#include <tessera/sdk/plugin.h>

#include "dynamic.h"
#include "hash.h"

TESSERA_PLUGIN("dynamic", "1.0.0",
               tessera::sdk::component<extras::Dynamic>(
                   {.id = "dynamic", .version = "1.0.0", .about = "rows on demand, evicted when there is no room"}),
               tessera::sdk::component<extras::Hash>(
                   {.id = "hash", .version = "1.0.0", .about = "whole buckets of ids on each rank"}));
