// One plugin with a component of every kind, on the SDK. Only functions that the tests use do anything.
#include "many_kinds.h"

using namespace many_kinds;
using tessera::sdk::component;

TESSERA_PLUGIN("many_kinds", "2.1",
               component<Sum>({.id = "many.sum", .version = "1", .about = "an optimizer that adds"}),
               component<Plain>({.id = "many.plain", .version = "1", .about = "a sharder", .priority = 5}),
               component<Echo>({.id = "many.echo", .version = "2.0-rc1", .about = "a layer that copies"}),
               component<Loop>({.id = "many.loop", .version = "1", .about = "a transport of one rank"}),
               component<Wrap>({.id = "many.wrap", .version = "1", .about = "wraps any transport"}),
               component<Ones>({.id = "many.ones", .version = "1", .about = "a kernel whose rows are 1"}),
               component<Never>({.id = "many.never", .version = "1", .about = "cannot run", .priority = 99}));
