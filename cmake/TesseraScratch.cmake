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

# Under AddressSanitizer the tests themselves are compiled as ever, which takes a quarter of the time, and are found in
# ccache where the plain build was before: what the sanitizer looks at is what they call. Checked as well are those that
# have code to be tested in themselves, and all with TESSERA_SANITIZE_WHOLE; under ThreadSanitizer, which has to see
# every access, all.
set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
set(checked FALSE)
if(TESSERA_SANITIZE)
  set(checked TRUE)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING
    AND (NOT checked OR (TESSERA_SANITIZE MATCHES "address" AND NOT TESSERA_SANITIZE_WHOLE)))
  find_program(TESSERA_TEST_CLANG clang++-14)
  if(TESSERA_TEST_CLANG)
    set(launcher ${PROJECT_SOURCE_DIR}/cmake/test_compiler.sh ${TESSERA_TEST_CLANG} ${launcher})
    set(checked FALSE)
  endif()
endif()

# What tests include, parsed once: a target whose header others use.
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
  tessera_test_headers(tessera_checked_test_headers "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

tessera_targets_below(${PROJECT_SOURCE_DIR} targets)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  get_target_property(sources ${target} SOURCES)
  get_target_property(tested_within ${target} TESSERA_TESTED_WITHIN)
  get_target_property(folder ${target} SOURCE_DIR)
  if(type STREQUAL "MODULE_LIBRARY" AND folder MATCHES "/tests/" AND NOT checked
      AND NOT sources MATCHES "/(plugins|kernels_[a-z]+)/")  # parts that only tests have
    target_compile_options(${target} PRIVATE -O0)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    continue()
  endif()
  # Kernels for the emulated GPU take long enough optimised.
  if(NOT type STREQUAL "EXECUTABLE" OR target MATCHES "test_headers$" OR NOT libraries MATCHES "GTest::gtest"
      OR sources MATCHES "\\.cu(;|$)")
    continue()
  endif()
  target_compile_options(${target} PRIVATE -O0)
  # A source with options of its own does without.
  set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
  # What else is compiled into it than tests and what only tests have.
  list(FILTER sources EXCLUDE REGEX "^\\$<|_test\\.cc$|(^|/)(test_news|proxy|main|ranks|tools_not_built)\\.cc$")
  if(TESSERA_SANITIZE AND NOT checked AND (sources OR tested_within))
    target_precompile_headers(${target} REUSE_FROM tessera_checked_test_headers)
  else()
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
  endif()
endforeach()

# Programs that tests run and no test times: optimised less, a quarter less to compile. Those that look at other parts
# are not checked themselves.
set(tools tessera_conformance tessera_verify tessera_bench_report fuzz_targets)
foreach(target tessera_cli tessera_serve tessera_ranks tessera_tcp_proxy grpc_messages ${tools})
  if(NOT TARGET ${target} OR checked)
    continue()
  elseif(NOT TESSERA_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)
  elseif(target IN_LIST tools)
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
endforeach()
