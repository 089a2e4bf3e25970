# tessera_add_plugin(NAME [NOT_INSTALLED] SOURCES ... [LINK libraries...]) A plugin in the form that the loader
# requires: a module with one exported symbol, complete at link time, never unloaded. It is optimised: a project without
# a CMAKE_BUILD_TYPE is built as Release.
set(TESSERA_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
function(tessera_add_plugin name)
  cmake_parse_arguments(PLUGIN "NOT_INSTALLED" "" "SOURCES;LINK" ${ARGN})
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, RelWithDebInfo, Release" FORCE)
    message(STATUS "tessera_add_plugin: no CMAKE_BUILD_TYPE is given, so this is a Release build")
  endif()
  add_library(${name} MODULE ${PLUGIN_SOURCES})
  set_target_properties(${name} PROPERTIES
    PREFIX "tessera_" C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${TESSERA_PLUGIN_MAP})
  target_link_libraries(${name} PRIVATE tessera::sdk ${PLUGIN_LINK})
  target_link_options(${name} PRIVATE -Wl,--version-script=${TESSERA_PLUGIN_MAP} -Wl,--exclude-libs,ALL -Wl,-z,nodelete)
  if(NOT TESSERA_SANITIZE)  # a sanitizer's runtime is in the program
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  # The loader refuses files that others may write, and some umasks let the group write.
  add_custom_command(TARGET ${name} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${name}> $<TARGET_FILE_DIR:${name}>
    VERBATIM)
  if(PROJECT_NAME STREQUAL "tessera")
    target_link_libraries(${name} PRIVATE tessera_flags)
    tessera_unity(${name})
    if(PLUGIN_NOT_INSTALLED)  # for tests: not found unless a search path names the folder
      set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera/test-plugins)
    else()
      set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tessera/plugins-1)
      set_property(GLOBAL APPEND PROPERTY TESSERA_PLUGINS ${name})
    endif()
  endif()
endfunction()
