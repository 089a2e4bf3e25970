// hot_rows: popular rows are on every rank, and the others are divided in turn (see hot_rows.h).
#include "hot_rows.h"

TESSERA_PLUGIN("hot_rows", "1.0.0",
               tessera::sdk::component<extras::HotRows>({.id = "hot_rows",
                                                         .version = "1.0.0",
                                                         .about = "popular rows on every rank, the others dealt out"}));
