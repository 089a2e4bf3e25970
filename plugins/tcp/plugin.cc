#include "tessera/sdk/plugin.h"
#include "tcp.h"

TESSERA_PLUGIN(
    "tcp", "1.0.0",
    tessera::sdk::component<tessera::tcp::Tcp>({.id = "tcp",
                                                .version = "1.0.0",
                                                .about = "sockets between processes: needs nothing installed",
                                                .priority = 10}));
