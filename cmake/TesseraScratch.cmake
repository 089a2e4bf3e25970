# Builds from scratch (TESSERA_UNITY: CI): tests are compiled in half the time. What they all include is parsed once,
# and they are not optimised; the code that they test is. A developer's build does without, so that each file includes
# what it uses, and one change recompiles little.
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

tessera_targets_below(${PROJECT_SOURCE_DIR} targets)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "EXECUTABLE" OR target STREQUAL "tessera_test_headers")
    continue()
  endif()
  get_target_property(libraries ${target} LINK_LIBRARIES)
  # Tests of the emulated GPU have its kernels in them, which take long enough.
  if("GTest::gtest_main" IN_LIST libraries AND NOT "tessera_simt" IN_LIST libraries)
    target_compile_options(${target} PRIVATE -O0)
    # A source with options of its own does without.
    set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
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
