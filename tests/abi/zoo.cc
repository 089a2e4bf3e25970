// One plugin with a component of every kind, on the SDK: only what the tests look at is real.
#include "zoo.h"

using namespace zoo;
using tessera::sdk::component;

TESSERA_PLUGIN("zoo", "2.1", component<Sum>({.id = "zoo.sum", .version = "1", .about = "an optimizer that adds"}),
               component<Plain>({.id = "zoo.plain", .version = "1", .about = "a sharder", .priority = 5}),
               component<Echo>({.id = "zoo.echo", .version = "2.0-rc1", .about = "a layer that copies"}),
               component<Loop>({.id = "zoo.loop", .version = "1", .about = "a transport of one rank"}),
               component<Wrap>({.id = "zoo.wrap", .version = "1", .about = "wraps any transport"}),
               component<Ones>({.id = "zoo.ones", .version = "1", .about = "a kernel whose rows are 1"}),
               component<Never>({.id = "zoo.never", .version = "1", .about = "cannot run", .priority = 99}));
