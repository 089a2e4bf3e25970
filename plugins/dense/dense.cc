// The dense layers as a plugin.
#include "cross.h"
#include "dot_interaction.h"
#include "mlp.h"
#include "tessera/sdk/isa.h"
#include "tessera/sdk/plugin.h"

namespace tessera_dense {

const Loops& choose_loops() {
  const tessera::sdk::IsaVariant variants[] = {
#if TESSERA_X86
    {"avx512",
     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw"),
     &avx512::kLoops},
    {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), &avx2::kLoops},
#endif
    {"portable", true, &portable::kLoops},
  };
  return *static_cast<const Loops*>(tessera::sdk::choose_isa(variants).table);
}

}  // namespace tessera_dense

using tessera::sdk::component;

TESSERA_PLUGIN(
    "dense", "1.0.0",
    component<tessera_dense::Mlp>({.id = "mlp", .version = "1.0.0", .about = "linear layers with ReLU (oneDNN)"}),
    component<tessera_dense::DotInteraction>(
        {.id = "dot_interaction", .version = "1.0.0", .about = "DLRM's pairwise dot products"}),
    component<tessera_dense::Cross>(
        {.id = "cross", .version = "1.0.0", .about = "cross network of DCN-v2, low rank optional (oneDNN)"}));
