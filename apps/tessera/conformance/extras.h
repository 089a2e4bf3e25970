// Area "extras": everything besides tables and their kernels. Modules and models are in extras_modules.cc and
// extras_models.cc, operators in extras_operators.cc, metrics in extras_metrics.cc, managed collisions in
// extras_managed_collisions.cc.
#pragma once

#include "conformance/runner.h"

namespace tessera::cli {

void add_extra_operators(OpTable& ops);
void add_extra_modules(OpTable& ops);
void add_extra_models(OpTable& ops);
void add_extra_metrics(OpTable& ops);
void add_managed_collisions(OpTable& ops);

}  // namespace tessera::cli
