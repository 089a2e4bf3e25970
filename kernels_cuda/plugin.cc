// The components of a GPU plugin: cuda, hip, or the emulator that tests run.
#include "tessera/sdk/plugin.h"
#include "dense/modules.h"
#include "device/gpu_device.h"
#include "gpu/gpu.h"
#include "kernel/kernel.h"

namespace {

#if defined(TESSERA_GPU_EMULATOR)
constexpr int32_t kPriority = -100;  // "auto" never chooses it, because it is slower than any other
#else
constexpr int32_t kPriority = 10;
#endif

}  // namespace

TESSERA_PLUGIN("gpu-" GPU_KIND_NAME, "0.1.0",
               tessera::sdk::component<tessera::gpu::GpuKernel>({.id = GPU_KIND_NAME,
                                                                 .version = "0.1.0",
                                                                 .about = "lookups and fused updates by " GPU_VENDOR,
                                                                 .priority = kPriority}),
               tessera::sdk::component<tessera::gpu::GpuDevice>({.id = GPU_KIND_NAME,
                                                                 .version = "0.1.0",
                                                                 .about = "memory and streams of " GPU_VENDOR,
                                                                 .priority = kPriority}),
               tessera::sdk::component<tessera::gpu::GpuMlp>({.id = GPU_KIND_NAME ".mlp",
                                                              .version = "0.1.0",
                                                              .about = "mlp on " GPU_VENDOR " devices",
                                                              .priority = kPriority}),
               tessera::sdk::component<tessera::gpu::GpuDotInteraction>({.id = GPU_KIND_NAME ".dot_interaction",
                                                                         .version = "0.1.0",
                                                                         .about = "dot_interaction on " GPU_VENDOR,
                                                                         .priority = kPriority}),
               tessera::sdk::component<tessera::gpu::GpuCross>({.id = GPU_KIND_NAME ".cross",
                                                                .version = "0.1.0",
                                                                .about = "cross on " GPU_VENDOR " devices",
                                                                .priority = kPriority}));
