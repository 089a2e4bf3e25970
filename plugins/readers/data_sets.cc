// The plugin of readers that know their columns.
#include "criteo.h"
#include "movielens.h"
#include "prepared.h"
#include "tessera/sdk/plugin.h"
#include "user_items.h"

namespace tessera_readers {

TESSERA_PLUGIN(
    "tessera-data-sets", "1.0.0",
    tessera::sdk::component<Criteo>({.id = "criteo-tsv", .version = "1.0.0", .about = "Criteo's click logs"}),
    tessera::sdk::component<MovieLens>(
        {.id = "movielens-100k", .version = "1.0.0", .about = "MovieLens-100K, as RecBole packs it"}),
    tessera::sdk::component<Prepared>(
        {.id = "prepared", .version = "1.0.0", .about = "meta.json, train.tsv and test.tsv, one sample per line"}),
    tessera::sdk::component<UserItems>(
        {.id = "user-items", .version = "1.0.0", .about = "histories: lines of a user and items"}));

}  // namespace tessera_readers
