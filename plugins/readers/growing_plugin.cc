// The reader growing: tessera.reader.arriving/draft-1 over another reader and a directory in which files arrive.
#include "growing.h"

namespace tessera_readers {

TESSERA_PLUGIN("tessera-growing", "1.0.0",
               tessera::sdk::component<Growing>(
                   {.id = "growing",
                    .version = "1.0.0",
                    .about = "files that come to a directory, read by another reader: growing(csv)"}));

}  // namespace tessera_readers
