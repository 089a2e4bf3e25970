// The plugin of the reader histories.
#include "history/reader.h"

namespace tessera_readers {

TESSERA_PLUGIN("tessera-history", "1.0.0",
               tessera::sdk::component<HistoryReader>(
                   {.id = "histories",
                    .version = "1.0.0",
                    .about = "histories of users, from events that another reader reads: [history]"}));

}  // namespace tessera_readers
