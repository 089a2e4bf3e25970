# Language level, warnings, sanitizers, and how a folder of the core is built.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, RelWithDebInfo, Release" FORCE)
endif()
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

option(TESSERA_TESTS "Build the tests" ON)
option(TESSERA_TOOLS "Build bench, conformance, calibrate, verify, the examples, and a proxy for trials of tcp" ON)
option(TESSERA_BENCHMARKS "Build microbenchmarks (libbenchmark-dev)" OFF)
option(TESSERA_UNITY "Compile a target's sources folder by folder in one go: a third of the time from scratch" OFF)
option(TESSERA_QUICK "Optimise code less that does no work for a batch: two thirds of the compiler's time for it" OFF)
option(TESSERA_WERROR "Warnings are errors" OFF)
option(TESSERA_COVERAGE "Count which lines of the core and of tcp run (scripts/dev/coverage)" OFF)
set(TESSERA_SANITIZE "" CACHE STRING "Sanitizers for everything, e.g. address,undefined or thread")
option(TESSERA_SANITIZE_WHOLE "Of tests themselves too, and with the checks that cost most to compile" OFF)

include(GNUInstallDirs)
set(TESSERA_PLUGIN_DIR ${CMAKE_INSTALL_LIBDIR}/tessera/plugins-1)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -fno-omit-frame-pointer>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
# Macros give sources by their path in the repository, not by the path on this machine.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
if(TESSERA_WERROR)
  target_compile_options(tessera_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>)
endif()
if(TESSERA_UNITY AND TESSERA_TESTS)  # from scratch: what takes time and no test looks at is left out
  if(NOT TESSERA_SANITIZE)  # whose reports name lines
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-g0>)
  endif()
endif()
if(TESSERA_UNITY)
  # gcc starts to collect garbage at 128 MB and repeats it often, which takes a tenth of its time.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
endif()
if(TESSERA_UNITY AND TESSERA_TESTS)
  find_program(TESSERA_MOLD mold)
  if(TESSERA_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
# A sanitizer's build leaves out tests of what no sanitizer can find, unless it is to be whole.
set(TESSERA_SANITIZE_LESS OFF)
if(TESSERA_SANITIZE AND NOT TESSERA_SANITIZE_WHOLE)
  set(TESSERA_SANITIZE_LESS ON)
endif()
set(TESSERA_SANITIZED)  # the definition by which tests know
if(TESSERA_SANITIZE)
  set(TESSERA_SANITIZED TESSERA_TEST_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${TESSERA_SANITIZE};-fno-sanitize-recover=undefined>")
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  # A null pointer ends the program anyway; together these checks take a sixth of the compiler's time and more.
  if(TESSERA_SANITIZE MATCHES "undefined" AND NOT TESSERA_SANITIZE_WHOLE)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=null,object-size,pointer-overflow,vptr>)
  endif()
  # With this check, clang-14 cannot compile coroutines ("Cannot represent a difference across sections").
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=function>)
  if(TESSERA_SANITIZE MATCHES "thread")  # fences, which gcc warns of, are Boost.Asio's alone: hundreds of lines
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-tsan>)
  endif()
endif()

# Counts a target's lines, with TESSERA_COVERAGE. It is not optimised, because gcov would count other lines than those
# written. Processes and threads count together. Templates of other headers are not counted, because they would take
# most of the time.
function(tessera_counts_lines target)
  if(TESSERA_COVERAGE)
    target_compile_options(${target} PRIVATE --coverage -O0 -fprofile-update=atomic
      "-fprofile-filter-files=(core/src|plugins/tcp)/")
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/coverage.cc)
  endif()
endfunction()
if(TESSERA_COVERAGE)
  add_link_options(--coverage)
endif()

# For tests that start ranks as processes: LeakSanitizer stops a process by ptrace as it ends, which sometimes fails
# while its launcher ends others. All other tests look for leaks.
function(tessera_starts_ranks)
  if(TESSERA_SANITIZE MATCHES "address")
    set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  endif()
endfunction()

# tessera_sampled(TEST N): a sanitizer's build runs only every Nth case, or all with TESSERA_SANITIZE_WHOLE. For cases
# that run the same code with different data.
function(tessera_sampled test n)
  if(TESSERA_TESTS AND TESSERA_SANITIZE_LESS)
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "GTEST_TOTAL_SHARDS=${n}" "GTEST_SHARD_INDEX=0")
  endif()
endfunction()

# tessera_not_checked(TESTS...): a sanitizer's build runs them only with TESSERA_SANITIZE_WHOLE, because other tests run
# the same code of ours.
function(tessera_not_checked)
  if(TESSERA_TESTS AND TESSERA_SANITIZE_LESS)
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS long)
  endif()
endfunction()

# Tests of code with its own threads: `scripts/test --threaded` builds and runs only these.
add_custom_target(tessera_threaded_tests)
function(tessera_threaded)
  foreach(test ${ARGN})
    add_dependencies(tessera_threaded_tests ${test})
    set_property(TEST ${test} APPEND PROPERTY LABELS threaded)
  endforeach()
endfunction()

# What tests of several folders share: "shell.h", "tessera_program.h", and the core's "config/test_directory.h".
add_library(test_support INTERFACE)
target_include_directories(test_support INTERFACE ${PROJECT_SOURCE_DIR}/tests/support
  ${PROJECT_SOURCE_DIR}/tests/integration ${PROJECT_SOURCE_DIR}/core/src)

# tessera_run(NAME SECONDS [RANKS] [LABELS ...] [ENVIRONMENT A=B ...] [PASS REGEX] [SKIP REGEX] COMMAND ...): a test
# that runs a command, within this time. With RANKS it starts ranks as processes.
function(tessera_run name seconds)
  cmake_parse_arguments(PARSE_ARGV 2 RUN "RANKS" "PASS;SKIP" "LABELS;ENVIRONMENT;COMMAND")
  add_test(NAME ${name} COMMAND ${RUN_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} LABELS "${RUN_LABELS}" ENVIRONMENT "${RUN_ENVIRONMENT}")
  foreach(end PASS SKIP)
    if(RUN_${end})
      set_property(TEST ${name} PROPERTY ${end}_REGULAR_EXPRESSION "${RUN_${end}}")
    endif()
  endforeach()
  if(RUN_RANKS)
    tessera_starts_ranks(${name})
  endif()
endfunction()

# tessera_test(NAME SOURCES ... [LINK libraries...] [DEFINITIONS ...] [INCLUDE folders...] [NEEDS targets...]
# [TIMEOUT seconds] [LABELS ...] [ENVIRONMENT A=B ...] [RANKS]): a GoogleTest program, and a test of the same name that
# runs it, with a limit of two minutes unless told otherwise. NEEDS is built first; with RANKS it starts ranks as
# processes.
function(tessera_test name)
  if(NOT TESSERA_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "RANKS" "TIMEOUT" "SOURCES;LINK;DEFINITIONS;INCLUDE;NEEDS;LABELS;ENVIRONMENT"
    TIMEOUT 120 ${ARGN})
  if(TESSERA_SANITIZE)  # whose programs are slower
    math(EXPR TEST_TIMEOUT "2 * ${TEST_TIMEOUT}")
  endif()
  add_executable(${name} ${TEST_SOURCES})
  tessera_unity_of(${name} "_test\\.cc$")
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${TEST_INCLUDE})
  target_compile_definitions(${name} PRIVATE ${TEST_DEFINITIONS})
  target_link_libraries(${name} PRIVATE tessera_flags ${TEST_LINK} GTest::gtest_main GTest::gmock)
  if(TEST_NEEDS)
    add_dependencies(${name} ${TEST_NEEDS})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}"
    ENVIRONMENT "${TEST_ENVIRONMENT}")
  if(TEST_RANKS)
    tessera_starts_ranks(${name})
  endif()
endfunction()

# tessera_suites_of(SOURCE OUT): the suites of a source of tests, as GoogleTest's filter. A program of several sources
# runs as a test for each.
function(tessera_suites_of source out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} suites REGEX "^TEST(_F|_P)?\\(")
  list(TRANSFORM suites REPLACE "^TEST[_FP]*\\(([A-Za-z0-9]+).*" "\\1.*:*/\\1.*")
  list(REMOVE_DUPLICATES suites)
  list(JOIN suites ":" filter)
  set(${out} ${filter} PARENT_SCOPE)
endfunction()

# tessera_unity_of(TARGET REGEX): with TESSERA_UNITY, its sources that match are compiled together, folder by folder.
# Sources with their own options or definitions are compiled separately.
function(tessera_unity_of target regex)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "${regex}")
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    string(REPLACE "${PROJECT_SOURCE_DIR}" "" folder "${folder}")  # of any clone, for a compiler cache
    string(MAKE_C_IDENTIFIER "folder${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # gcc takes a type in an anonymous namespace for a header's type if its file is included.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# tessera_unity(TARGET): with TESSERA_UNITY, all its sources but device code are compiled together, folder by folder.
function(tessera_unity target)
  tessera_unity_of(${target} "\\.cc$")
  if(TESSERA_UNITY)  # some directories set the options of sources after the target is made
    cmake_language(EVAL CODE "cmake_language(DEFER CALL tessera_unity_with_options ${target})")
  endif()
endfunction()

# tessera_unity_whole(): with TESSERA_UNITY, the folders of each target of this directory are compiled together too. It
# comes after the targets. Names in anonymous namespaces then differ in all folders of a target.
function(tessera_unity_whole)
  file(GLOB_RECURSE sources *.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP whole)
endfunction()

# Makes one source of those sources of a target that are in one folder and have the same options of their own, because
# CMake would compile each separately.
function(tessera_unity_with_options target)
  get_target_property(sources ${target} SOURCES)
  set(groups)
  foreach(source ${sources})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(apart ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(source MATCHES "\\.cc$" AND options AND NOT apart)
      get_filename_component(folder ${source} DIRECTORY)
      string(MD5 group "${folder} ${options}")
      list(APPEND groups ${group})
      list(APPEND sources_${group} ${source})
      set(options_${group} "${options}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group ${groups})
    list(LENGTH sources_${group} count)
    if(count LESS 2)
      continue()
    endif()
    set(text)
    foreach(source ${sources_${group}})
      get_filename_component(path ${source} ABSOLUTE)
      string(APPEND text "#include \"${path}\"\n")
    endforeach()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${group}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options_${group}}")
    list(REMOVE_ITEM sources ${sources_${group}})
    list(APPEND sources ${file})
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${sources})
endfunction()

# tessera_small(TARGET): optimises for size, because the target does no work for a batch.
function(tessera_small target)
  if(NOT TESSERA_SANITIZE AND NOT TESSERA_COVERAGE)
    target_compile_options(${target} PRIVATE $<IF:$<BOOL:${TESSERA_QUICK}>,-Og,-Os>)
  endif()
endfunction()

# tessera_rare(TARGET [LEVEL]): with TESSERA_QUICK the target is optimised less, by -Og or by LEVEL, because it works
# when a job starts or a command is given.
function(tessera_rare target)
  if(TESSERA_QUICK)
    target_compile_options(${target} PRIVATE ${ARGN})
    if(NOT ARGN)
      target_compile_options(${target} PRIVATE -Og)
    endif()
  endif()
endfunction()

# tessera_core_folder(NAME [DEPENDS lower folders...] [LINK libraries...] [FOLDERS folders inside...]) A folder of the
# core: every *.cc of the folder and of FOLDERS, except tests (*_test.cc), is part of libtessera. The tests become one
# program, NAME_test, that links this folder and the named folders, so that an include of a higher folder does not link.
set_property(GLOBAL PROPERTY TESSERA_CORE_FOLDERS "")
function(tessera_core_folder name)
  cmake_parse_arguments(CORE_FOLDER "" "" "DEPENDS;LINK;FOLDERS" ${ARGN})
  list(TRANSFORM CORE_FOLDER_FOLDERS APPEND /*.cc)
  file(GLOB sources CONFIGURE_DEPENDS *.cc ${CORE_FOLDER_FOLDERS})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(NOT sources)  # a folder that is described but still empty
    return()
  endif()
  add_library(tessera_${name} OBJECT ${sources})
  tessera_unity(tessera_${name})
  tessera_counts_lines(tessera_${name})
  target_include_directories(tessera_${name} PUBLIC ${PROJECT_SOURCE_DIR}/core/include ${PROJECT_SOURCE_DIR}/core/src)
  target_link_libraries(tessera_${name} PRIVATE tessera_flags PUBLIC dlpack::dlpack Threads::Threads
    ${CORE_FOLDER_LINK})
  set(lower_folders)
  foreach(lower ${CORE_FOLDER_DEPENDS})
    if(TARGET tessera_${lower})
      list(APPEND lower_folders tessera_${lower})
    endif()
  endforeach()
  target_link_libraries(tessera_${name} PUBLIC ${lower_folders})
  set_property(GLOBAL APPEND PROPERTY TESSERA_CORE_FOLDERS ${name})
  if(TESSERA_TESTS AND tests)
    add_executable(${name}_test ${tests})
    tessera_unity_of(${name}_test "_test\\.cc$")
    target_link_libraries(${name}_test PRIVATE tessera_flags tessera_${name} ${lower_folders} ${CORE_FOLDER_LINK}
      GTest::gtest_main GTest::gmock)
    add_test(NAME ${name}_test COMMAND ${name}_test)
    set_tests_properties(${name}_test PROPERTIES ENVIRONMENT "TESSERA_BUILD_DIR=${CMAKE_BINARY_DIR}")
  endif()
endfunction()
