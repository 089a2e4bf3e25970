#include "conformance/extras.h"

namespace tessera::cli {
OpTable extra_ops() {
  OpTable ops;
  add_extra_operators(ops);
  add_extra_modules(ops);
  add_extra_models(ops);
  add_extra_metrics(ops);
  add_managed_collisions(ops);
  return ops;
}

}  // namespace tessera::cli
