// ftrl: FTRL-proximal as an optimizer of fused tables; ftrl.h has the formula and its source.
#include "ftrl.h"

TESSERA_PLUGIN(
    "ftrl", "1.0.0",
    tessera::sdk::component<extras::Ftrl>({.id = "ftrl", .version = "1.0.0", .about = "FTRL-proximal, sparse by l1"}));
