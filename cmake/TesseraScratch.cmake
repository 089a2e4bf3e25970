# Builds from scratch (TESSERA_UNITY: CI): tests are compiled in a quarter of the time. What they all include is parsed
# once, they are not optimised, and clang compiles them where there is one; the code that they test is optimised, and by
# the compiler that was asked for. A developer's build does without, so that each file includes what it uses, and one
# change recompiles little.
if(NOT (TESSERA_UNITY AND TESSERA_TESTS))
  return()
endif()

function(tessera_targets_below directory out)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(subdirectories DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(subdirectory ${subdirectories})
    tessera_targets_below(${subdirectory} below)
    list(APPEND targets ${below})
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

file(WRITE ${CMAKE_BINARY_DIR}/test_headers/empty.cc "")
add_executable(tessera_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers/empty.cc)
target_link_libraries(tessera_test_headers PRIVATE tessera_flags nlohmann_json::nlohmann_json GTest::gtest_main
  GTest::gmock)
target_compile_options(tessera_test_headers PRIVATE -O0)
target_precompile_headers(tessera_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <algorithm>
  <atomic> <chrono> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set>
  <sstream> <string> <thread> <vector>)

# Not under sanitizers: gcc's runtime, and gcc's macros that say which of them there is.
set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
if(NOT TESSERA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
  find_program(TESSERA_TEST_CLANG clang++-14)
  if(TESSERA_TEST_CLANG)
    set(launcher ${PROJECT_SOURCE_DIR}/cmake/test_compiler.sh ${TESSERA_TEST_CLANG} ${launcher})
  endif()
endif()
set_target_properties(tessera_test_headers PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}" PCH_WARN_INVALID OFF)

tessera_targets_below(${PROJECT_SOURCE_DIR} targets)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "EXECUTABLE" OR target STREQUAL "tessera_test_headers")
    continue()
  endif()
  get_target_property(libraries ${target} LINK_LIBRARIES)
  get_target_property(sources ${target} SOURCES)
  # Kernels for the emulated GPU take long enough optimised.
  if(libraries MATCHES "GTest::gtest" AND NOT sources MATCHES "\\.cu(;|$)")
    target_compile_options(${target} PRIVATE -O0)
    # A source with options of its own does without.
    set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF CXX_COMPILER_LAUNCHER "${launcher}")
    target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
  endif()
endforeach()

# Tools that tests run and no test times: optimised less, a quarter less to compile.
if(NOT TESSERA_SANITIZE)
  foreach(target tessera_conformance tessera_verify tessera_bench_report fuzz_targets)
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE -O1)
    endif()
  endforeach()
endif()
