# Device code: one source, three compilers. CUDA by nvcc, HIP by Debian's clang-15, and the CPU emulator of
# tests/gpu_emulator.
#
# tessera_add_gpu_plugin(NAME BACKEND cuda|hip|emulator SOURCES ... [LINK libraries...])
# A plugin from .cu files, which the backend's compiler gets, and .cc files, which the host's gets. All of them see
# "gpu/gpu.h" (kernels_cuda) and the macro TESSERA_GPU_CUDA, _HIP or _EMULATOR. A directory calls it for only one
# backend. The device compilers' output about registers and spills is next to each object as *.resources: see
# scripts/dev/gpu_resources.
set(TESSERA_GPU_INCLUDE ${PROJECT_SOURCE_DIR}/kernels_cuda)
set(TESSERA_RECORD_RESOURCES ${PROJECT_SOURCE_DIR}/cmake/record_resources.sh ${CMAKE_CXX_COMPILER_LAUNCHER})
set(TESSERA_HIP_ARCHITECTURES "gfx90a" CACHE STRING "AMD GPUs to compile for: gfx9 of the Instinct kind")

function(tessera_add_gpu_plugin name)
  cmake_parse_arguments(GPU "" "BACKEND" "SOURCES;LINK" ${ARGN})
  set(device ${GPU_SOURCES})
  list(FILTER device INCLUDE REGEX "\\.cu$")
  set(host ${GPU_SOURCES})
  list(FILTER host EXCLUDE REGEX "\\.cu$")
  string(TOUPPER ${GPU_BACKEND} backend)
  if(GPU_BACKEND STREQUAL cuda)
    tessera_add_plugin(${name} SOURCES ${host} ${device} LINK CUDA::cudart_static ${GPU_LINK})
    set_target_properties(${name} PROPERTIES CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static)
    set_property(TARGET ${name} PROPERTY CUDA_COMPILER_LAUNCHER ${TESSERA_RECORD_RESOURCES})
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v;-Xcompiler=-Wall,-Wextra>")
    if(TESSERA_WERROR)
      target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
    endif()
  elseif(GPU_BACKEND STREQUAL hip)
    tessera_hip_objects(${name} objects ${device})
    tessera_add_plugin(${name} SOURCES ${host} ${objects} LINK ${HIP_LIBRARY} ${GPU_LINK})
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
    target_compile_definitions(${name} PRIVATE __HIP_PLATFORM_AMD__)
  else()
    set_source_files_properties(${device} PROPERTIES LANGUAGE CXX)
    tessera_add_plugin(${name} NOT_INSTALLED SOURCES ${host} ${device} LINK tessera_gpu_emulator ${GPU_LINK})
  endif()
  target_compile_definitions(${name} PRIVATE TESSERA_GPU_${backend})
  target_include_directories(${name} PRIVATE ${TESSERA_GPU_INCLUDE})
endfunction()

# CMake 3.25's own HIP language does not find Debian's HIP.
function(tessera_hip_objects name out)
  get_target_property(dlpack_include dlpack::dlpack INTERFACE_INCLUDE_DIRECTORIES)
  set(flags -x hip -std=c++20 -O3 -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra
    $<$<BOOL:${TESSERA_WERROR}>:-Werror> -D__HIP_PLATFORM_AMD__ -DTESSERA_GPU_HIP
    --rocm-path=/usr --rocm-device-lib-path=${HIP_DEVICE_LIBS}
    -Rpass-analysis=kernel-resource-usage -fno-caret-diagnostics
    -I${TESSERA_GPU_INCLUDE} -I${PROJECT_SOURCE_DIR}/core/include -idirafter ${dlpack_include})
  foreach(architecture ${TESSERA_HIP_ARCHITECTURES})
    list(APPEND flags --offload-arch=${architecture})
  endforeach()
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(base ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.dir/${base}.o)
    add_custom_command(OUTPUT ${object} BYPRODUCTS ${object}.resources
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/${name}.dir
      COMMAND ${TESSERA_RECORD_RESOURCES} ${HIP_CLANG} ${flags} -MD -MT ${object} -MF ${object}.d
        -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Building HIP object ${base}.o" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
