// The plugin of the reader history.
#include "history/reader.h"

namespace tessera_readers {

TESSERA_PLUGIN("tessera-history", "1.0.0",
               tessera::sdk::component<HistoryReader>(
                   {.id = "history",
                    .version = "1.0.0",
                    .about = "histories of users, from events that another reader reads: [history]"}));

}  // namespace tessera_readers
