# tessera_python_script(FILE OUT NAMESPACE NAME): writes OUT, a header with the text of FILE, a Python program that C++
# starts, as the constant NAME.
function(tessera_python_script file out namespace name)
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(READ ${path} text)
  set(code "// The text of ${file}.\n#pragma once\n\nnamespace ${namespace} {\n\n")
  string(APPEND code "inline constexpr char ${name}[] = R\"py(${text})py\";\n\n}  // namespace ${namespace}\n")
  file(CONFIGURE OUTPUT ${out} CONTENT "@code@" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
endfunction()
