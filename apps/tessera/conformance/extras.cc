#include "conformance/extras.h"

namespace tessera::cli {
namespace {

void managed_collisions(CaseContext&) { throw SkipCase{"managed collisions (ids without end) are not built"}; }

}  // namespace

OpTable extra_ops() {
  OpTable ops;
  add_extra_operators(ops);
  add_extra_modules(ops);
  add_extra_models(ops);
  add_extra_metrics(ops);
  for (const char* module :
       {"MCHManagedCollisionModule", "HashZchManagedCollisionModule", "ManagedCollisionEmbeddingBagCollection"}) {
    ops[cat("extras/", module)] = managed_collisions;
  }
  for (const char* op : {"murmur_hash3_2x64", "zero_collision_hash"}) ops[op] = managed_collisions;
  return ops;
}

}  // namespace tessera::cli
