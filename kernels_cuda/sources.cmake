# The sources of the GPU plugin; kernels_cuda, kernels_hip and tests/gpu_emulator each compile them for their backend.
set(TESSERA_GPU_KERNEL_SOURCES plugin.cc kernel/config.cc kernel/context.cc kernel/estimate.cc kernel/instance.cc
  kernel/table_store.cc device/gpu_device.cc device/jagged_calls.cc device/row_moves.cu gpu/forward.cu gpu/gradient.cu
  gpu/jagged.cu gpu/rows.cu gpu/sort.cu gpu/update.cu gpu/upload.cu dense/blas.cc dense/clipping.cu dense/cross.cc
  dense/dot_interaction.cc dense/elementwise.cu dense/loss.cu dense/mlp.cc dense/parameters.cu dense/product.cu)
list(TRANSFORM TESSERA_GPU_KERNEL_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
