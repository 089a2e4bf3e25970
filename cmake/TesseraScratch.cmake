# For builds from scratch (TESSERA_UNITY: CI), compiles tests in a quarter of the time. Their common headers are parsed
# once, tests are not optimised, and clang compiles them if available. The tested code is optimised and compiled by the
# chosen compiler. A developer's build does not do this, so that each file includes what it uses, and one change
# recompiles little.
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

# Under AddressSanitizer, the tests themselves are compiled without it, which takes a quarter of the time and finds them
# in ccache after a plain build; the sanitizer checks the code they call, which clang compiles: gcc takes three times as
# long. Tests that contain code under test are also checked. With TESSERA_SANITIZE_WHOLE, and under ThreadSanitizer,
# which must see every access, all are checked and gcc compiles them.
set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
set(checked_launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
set(checked FALSE)
if(TESSERA_SANITIZE)
  set(checked TRUE)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING
    AND (NOT checked OR (TESSERA_SANITIZE MATCHES "address" AND TESSERA_SANITIZE_LESS)))
  find_program(TESSERA_TEST_CLANG clang++-14)
  if(TESSERA_TEST_CLANG)
    set(compiler ${PROJECT_SOURCE_DIR}/cmake/test_compiler.sh)
    set(checked_launcher ${compiler} --checked ${TESSERA_TEST_CLANG} ${CMAKE_CXX_COMPILER_LAUNCHER})
    set(launcher ${compiler} ${TESSERA_TEST_CLANG} ${CMAKE_CXX_COMPILER_LAUNCHER})
    set(checked FALSE)
  endif()
endif()

# The common headers of tests, parsed once: a target whose precompiled header others use.
function(tessera_test_headers name launcher)
  file(WRITE ${CMAKE_BINARY_DIR}/test_headers/empty.cc "")
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/test_headers/empty.cc)
  target_link_libraries(${name} PRIVATE tessera_flags nlohmann_json::nlohmann_json GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE -O0)
  target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <algorithm>
    <atomic> <chrono> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set>
    <sstream> <string> <thread> <vector>)
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}" PCH_WARN_INVALID OFF)
endfunction()
tessera_test_headers(tessera_test_headers "${launcher}")
if(TESSERA_SANITIZE AND NOT checked)
  tessera_test_headers(tessera_checked_test_headers "${checked_launcher}")
endif()

tessera_targets_below(${PROJECT_SOURCE_DIR} targets)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  get_target_property(sources ${target} SOURCES)
  get_target_property(tested_within ${target} TESSERA_TESTED_WITHIN)
  get_target_property(folder ${target} SOURCE_DIR)
  # Plugins and a program that only tests use.
  if(NOT checked AND (target STREQUAL "tessera_tcp_proxy" OR (type STREQUAL "MODULE_LIBRARY"
      AND folder MATCHES "/tests/" AND NOT sources MATCHES "/(plugins|kernels_[a-z]+)/")))
    target_compile_options(${target} PRIVATE -O0)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    continue()
  endif()
  # Kernels for the emulated GPU are optimised, because they take long enough even then.
  if(NOT type STREQUAL "EXECUTABLE" OR target MATCHES "test_headers$" OR NOT libraries MATCHES "GTest::gtest"
      OR sources MATCHES "\\.cu(;|$)")
    continue()
  endif()
  target_compile_options(${target} PRIVATE -O0)
  # A source with its own options does not use the header.
  set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
  # Excludes sources other than tests and what only tests have.
  list(FILTER sources EXCLUDE REGEX "^\\$<|_test\\.cc$|(^|/)(test_news|proxy|main|ranks|tools_not_built)\\.cc$")
  if(TESSERA_SANITIZE AND NOT checked AND (sources OR tested_within))
    target_precompile_headers(${target} REUSE_FROM tessera_checked_test_headers)
  else()
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
  endif()
endforeach()

# Tests run this code but do not time it: gcc takes 25 s for the folder core/src/modules with -Og and 44 s with -O2.
# Lookup kernels and dense layers, which do the arithmetic of a batch, keep the optimisation of a developer's build, and
# the package test builds a release. Programs that inspect other code are not checked themselves by a sanitizer.
set(tools tessera_conformance tessera_parity tessera_verify tessera_bench_report fuzz_targets)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  get_target_property(folder ${target} SOURCE_DIR)
  if(type STREQUAL "INTERFACE_LIBRARY" OR type STREQUAL "UTILITY")
    continue()
  elseif(NOT TESSERA_SANITIZE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(folder MATCHES "/(core|apps|plugins|sharding_strategies)(/|$)" AND NOT folder MATCHES "/plugins/dense$"
        AND NOT libraries MATCHES "GTest::gtest")
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Og>)
    endif()
    continue()
  endif()
  if(target IN_LIST tools AND NOT checked)
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if(folder MATCHES "/(plugins/dense|plugins/tcp|core/src/planner|core/src/checkpoint)$"
      AND NOT libraries MATCHES "GTest::gtest")
    target_compile_options(${target} PRIVATE -O1)  # this code takes most of the tests' time
  endif()
  if(folder MATCHES "/kernels_cpu$" AND NOT libraries MATCHES "GTest::gtest")
    continue()  # clang takes longer than gcc for hundreds of inlined vector loops
  endif()
  get_target_property(chosen ${target} CXX_COMPILER_LAUNCHER)
  if(NOT chosen OR chosen STREQUAL "${CMAKE_CXX_COMPILER_LAUNCHER}")
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${checked_launcher}")
  endif()
endforeach()
