# Installs into a fresh folder, follows the pages about plugins, builds extras, templates and an application outside the
# tree against it, and runs them.
set(work ${BUILD}/package_test)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})

# run(VARIABLE command...): stores its standard output, or ends the test.
function(run out)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE errors RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGN}\n${text}${errors}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()
function(expect text pattern)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "expected ${pattern} in:\n${text}")
  endif()
endfunction()
# build(FOLDER NAME [OPTIONS...]): builds the project of that folder with CMake's defaults, like a user without options.
set(warnings -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers)
string(REPLACE ";" " " warnings_text "${warnings}")
function(build folder name)
  file(COPY ${folder}/ DESTINATION ${work}/${name})  # a copy: nothing of the source tree is in reach
  run(said ${CMAKE_COMMAND} -S ${work}/${name} -B ${work}/${name}-build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${warnings_text}"
    "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON --no-warn-unused-cli
    ${ARGN})
  run(ignored ${CMAKE_COMMAND} --build ${work}/${name}-build)
  set(said "${said}" PARENT_SCOPE)
endfunction()

# Installs, then moves the tree: nothing may remember its first place.
run(ignored ${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/before)
file(RENAME ${work}/before ${prefix})
set(share ${prefix}/share/tessera)
foreach(file bin/tessera ${LIBDIR}/libtessera.so include/tessera/abi/plugin.h include/tessera/sdk/sharder.h
    share/man/man1/tessera-bench-lookup.1 share/bash-completion/completions/tessera share/tessera/README.md
    share/tessera/docs/config.md share/tessera/configs/synthetic.toml
    share/tessera/configs/bench/step.toml share/tessera/apps/examples/introduction.cc)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} is not installed")
  endif()
endforeach()

# A page's links lead to what is installed.
file(GLOB_RECURSE pages ${share}/*.md)
foreach(page ${pages})
  get_filename_component(folder ${page} DIRECTORY)
  file(STRINGS ${page} lines REGEX "\\]\\([^()# ]+[./]")
  foreach(line ${lines})
    string(REGEX REPLACE "^.*\\]\\(([^()# :]+).*$" "\\1" path "${line}")  # the last one of the line
    if(NOT path MATCHES "^https?$" AND NOT path STREQUAL line AND NOT EXISTS ${folder}/${path})
      message(FATAL_ERROR "${page} links to ${path}, which is not installed")
    endif()
  endforeach()
endforeach()

# One version: program, packages of CMake and pkg-config, changelog and wheel have that of CMakeLists.txt.
string(REPLACE "." "\\." version "${VERSION}")
run(said ${prefix}/bin/tessera --version)
expect("${said}" "^tessera ${version}, plugin ABI ")
file(READ ${prefix}/${LIBDIR}/cmake/tessera/tesseraConfigVersion.cmake said)
expect("${said}" "PACKAGE_VERSION \"${version}\"")
file(READ ${prefix}/${LIBDIR}/pkgconfig/tessera.pc said)
expect("${said}" "\nVersion: ${version}\n")
file(STRINGS ${SOURCE}/CHANGELOG.md said REGEX "^## ")
expect("${said}" "^## ${version}([ ;]|$)")
file(READ ${SOURCE}/python/pyproject.toml said)
expect("${said}" "input = \"\\.\\./CMakeLists\\.txt\"\nregex = 'project\\\\\\(tessera VERSION ")
file(READ ${SOURCE}/CMakeLists.txt said)
expect("${said}" "project\\(tessera VERSION ${version} ")

# The pages about plugins are correct, line by line; they build what `tessera new` writes.
if(DENSE AND RANKS)
  run(ignored ${CMAKE_COMMAND} -E env CXX=${COMPILER} "CXXFLAGS=${warnings_text}" CMAKE_GENERATOR=${GENERATOR}
    CMAKE_BUILD_TYPE=None
    python3 ${SOURCE}/tests/docs/ten_minutes.py ${prefix} ${share}/docs ${work}/pages)
endif()
# Builds a transport on the SDK's engine, like a user would.
build(${SOURCE}/plugins/extras/unix unix)
run(ignored ctest --test-dir ${work}/unix-build --output-on-failure --no-tests=error)

# Builds plugins of every sort, from headers and documentation alone.
if(DENSE AND RANKS)
  build(${SOURCE}/tests/outside outside)
  run(ignored ctest --test-dir ${work}/outside-build --output-on-failure --no-tests=error -E delay)
endif()

# Also under another name.
run(ignored ${prefix}/bin/tessera new sharder acme.cards ${work}/new/sharder)
build(${work}/new/sharder template)
expect("${said}" "no CMAKE_BUILD_TYPE is given, so this is a Release build")
file(READ ${work}/template-build/compile_commands.json commands)
expect("${commands}" " -O3 ")
build(${SOURCE}/tests/package/app app)

# Extras are separate projects. The tree's tests have them optimised.
string(REPLACE "," ";" extras "${EXTRAS}")
foreach(extra ${extras})
  build(${SOURCE}/plugins/extras/${extra} ${extra} -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0)
  run(ignored ctest --test-dir ${work}/${extra}-build --output-on-failure --no-tests=error)
endforeach()

run(listing ${prefix}/bin/tessera plugins --verbose --path ${work}/template-build)
expect("${listing}" "acme\\.cards +tessera\\.sharder/1 +1\\.0\\.0 +1\\.0 +available +[^\n]*tessera_acme_cards\\.so")
expect("${listing}" "\n  ${prefix}/${LIBDIR}/tessera/plugins-1\n")
run(explained ${prefix}/bin/tessera plugins --path ${work}/template-build --explain acme.cards)
expect("${explained}" "^acme\\.cards, tessera\\.sharder/1, version 1\\.0\\.0\n +file +[^\n]*tessera_acme_cards\\.so\n")
expect("${explained}" "\n +state +available\n +about +row r on rank r mod N\n.*\n +contract +tessera/abi/sharder\\.h;")
if(listing MATCHES "rejected")
  message(FATAL_ERROR "an installed plugin is rejected:\n${listing}")
endif()
file(GLOB installed ${prefix}/${LIBDIR}/tessera/plugins-1/*.so)
foreach(plugin ${installed})
  expect("${listing}" "${plugin}")
endforeach()

run(answer ${work}/app-build/app ${work}/template-build acme.cards)
expect("${answer}" "acme.cards proposes 2 rectangles")

# A C program predicts with a model that the installed program made.
if(DENSE)
  file(COPY ${share}/apps/examples/ask_model.c DESTINATION ${work}/ask)
  build(${SOURCE}/tests/package/ask ask)
  run(ignored ${prefix}/bin/tessera train --config ${work}/ask/job.toml --save ${work}/checkpoint
    --html ${work}/run.html)
  run(ignored ${prefix}/bin/tessera quantize --load ${work}/checkpoint --save ${work}/model)
  run(answer ${work}/ask-build/ask_model ${work}/model)
  expect("${answer}" "dlrm [0-9a-f]+: 3 dense inputs, 2 features, 2 tables")
  expect("${answer}" "score 0\\.[0-9]+ \\(1 prediction\\)")
endif()

# The program of docs/cpp_api.md learns, on one rank and on two.
function(expect_learning text)
  if(NOT text MATCHES "step 100, loss ([0-9.]+)\nstep 200, loss [0-9.]+\nstep 300, loss ([0-9.]+)\n$"
      OR NOT CMAKE_MATCH_1 LESS 0.69 OR NOT CMAKE_MATCH_2 LESS 0.2)
    message(FATAL_ERROR "the loss does not fall from ${CMAKE_MATCH_1} to ${CMAKE_MATCH_2}:\n${text}")
  endif()
endfunction()
build(${share}/apps/template train_tables)
run(answer ${work}/train_tables-build/train_tables)
expect_learning("${answer}")
if(RANKS)
  run(answer ${prefix}/bin/tessera launch -n 2 -- ${work}/train_tables-build/train_tables)
  expect_learning("${answer}")
endif()

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
  run(plugindir ${PKG_CONFIG} --variable=plugindir tessera)
  string(STRIP "${plugindir}" plugindir)
  file(REAL_PATH "${plugindir}" plugindir)
  if(NOT plugindir STREQUAL "${prefix}/${LIBDIR}/tessera/plugins-1")
    message(FATAL_ERROR "pkg-config says plugindir=${plugindir}")
  endif()
  run(map ${PKG_CONFIG} --variable=plugin_map tessera)
  string(STRIP "${map}" map)
  if(NOT EXISTS "${map}")
    message(FATAL_ERROR "pkg-config says plugin_map=${map}")
  endif()
endif()
