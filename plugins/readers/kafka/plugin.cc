// The reader kafka: tessera.reader.arriving/draft-1 over a topic's messages.
#include "kafka/kafka.h"

namespace tessera_readers {

TESSERA_PLUGIN("tessera-kafka", "1.0.0",
               tessera::sdk::component<Kafka>({.id = "kafka",
                                               .version = "1.0.0",
                                               .about = "messages of a Kafka topic: JSON objects or CSV records"}));

}  // namespace tessera_readers
