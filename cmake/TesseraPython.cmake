# Finds a Python for tests that are written in Python.
set(TESSERA_PYTHON "" CACHE FILEPATH "A Python with numpy and pytest; the one of the system where it is empty")

# tessera_find_python(OUT IMPORTS): a Python that can `import IMPORTS`. Empty if there is none, and in builds with
# sanitizers, which do not work in a Python.
function(tessera_find_python out imports)
  set(${out} "" PARENT_SCOPE)
  if(TESSERA_SANITIZE)
    return()
  endif()
  foreach(candidate ${TESSERA_PYTHON} /usr/bin/python3 python3)
    execute_process(COMMAND ${candidate} -c "import ${imports}" RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
    if(NOT missing)
      set(${out} ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
