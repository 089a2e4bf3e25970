# What the core and the CPU kernels take of a disk and of memory: code and data of their shared libraries without what
# is for debuggers.
#   cmake -D SIZE=/usr/bin/size -D LIBRARIES=a.so,b.so -D MOST=BYTES -P library_sizes.cmake
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" libraries "${LIBRARIES}")
set(sum 0)
foreach(library ${libraries})
  execute_process(COMMAND ${SIZE} -B ${library} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  if(NOT text MATCHES "\n *([0-9]+)[ \t]+([0-9]+)[ \t]+[0-9]+")
    message(FATAL_ERROR "size -B ${library} printed what is not a table:\n${text}")
  endif()
  math(EXPR bytes "${CMAKE_MATCH_1} + ${CMAKE_MATCH_2}")
  math(EXPR sum "${sum} + ${bytes}")
  message(STATUS "${library}: ${bytes} bytes")
endforeach()
message(STATUS "together: ${sum} of at most ${MOST} bytes")
if(sum EQUAL 0 OR sum GREATER MOST)
  message(FATAL_ERROR "core and CPU kernels take ${sum} bytes; the budget is ${MOST}")
endif()
