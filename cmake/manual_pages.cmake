# Writes the manual pages that the program generates for itself and its commands: tessera.1, tessera-train.1, ...
#   cmake -D PROGRAM=bin/tessera -D OUT=FOLDER -P manual_pages.cmake
cmake_minimum_required(VERSION 3.25)

# page(NAME words...): writes the page of `tessera WORDS`, and those of the commands that its help lists with two spaces
# before each.
function(page name)
  execute_process(COMMAND ${PROGRAM} ${ARGN} --man OUTPUT_FILE ${OUT}/${name}.1 COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${PROGRAM} ${ARGN} --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "\n  [a-z][a-z-]*  " commands "${help}")
  foreach(command ${commands})
    string(STRIP "${command}" command)
    page(${name}-${command} ${ARGN} ${command})
  endforeach()
endfunction()

file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})
page(tessera)
