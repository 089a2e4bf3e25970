# make install: bin/tessera, lib/libtessera.so, lib/tessera/plugins-1/*.so, include/tessera, packages for CMake and
# pkg-config. share/tessera has documents, job configs, templates and examples, at the paths used in the documents.
# Nothing depends on the place of installation: the tree finds itself and may be moved as a whole.
include(CMakePackageConfigHelpers)

# `cmake --install` installs all; the components become packages (cmake/TesseraPackaging.cmake).
set(in_program COMPONENT program)
set(in_library COMPONENT library)
set(in_development COMPONENT development)

option(TESSERA_STRIP "cmake --install leaves out what is for debuggers alone" ON)
if(TESSERA_STRIP)  # as its --strip does
  install(CODE "set(CMAKE_INSTALL_DO_STRIP TRUE)" ALL_COMPONENTS)
endif()

file(RELATIVE_PATH TESSERA_LIB_FROM_BIN "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set(TESSERA_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
get_property(TESSERA_PLUGIN_TARGETS GLOBAL PROPERTY TESSERA_PLUGINS)

# Readable by all and writable only by the owner, whatever the umask, because the loader refuses anything else.
set(owner_writes OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${owner_writes})

set_target_properties(tessera_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${TESSERA_LIB_FROM_BIN}")
set_target_properties(tessera_sdk PROPERTIES EXPORT_NAME sdk)
set_target_properties(tessera PROPERTIES EXPORT_NAME core INSTALL_RPATH "$ORIGIN")
install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${in_program})
install(TARGETS tessera tessera_sdk EXPORT tessera LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${in_library}
  NAMELINK_COMPONENT development)
if(TARGET tessera_conformance)
  set_target_properties(tessera_conformance PROPERTIES INSTALL_RPATH "$ORIGIN/${TESSERA_LIB_FROM_BIN}")
  install(TARGETS tessera_conformance RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${in_development})
endif()
if(TARGET tessera_onnx)
  set_target_properties(tessera_onnx PROPERTIES INSTALL_RPATH "$ORIGIN/${TESSERA_LIB_FROM_BIN}")
  install(TARGETS tessera_onnx RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT onnx)
endif()
# Plugins whose libraries not everybody wants have packages of their own.
foreach(target ${TESSERA_PLUGIN_TARGETS})
  set(component library)
  if(target MATCHES "^(gpu_cuda|nccl)$")
    set(component cuda)
  elseif(target MATCHES "^(mpi|grpc)$")
    set(component ${target})
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${TESSERA_PLUGIN_DIR} PERMISSIONS ${owner_writes}
    COMPONENT ${component})
  list(APPEND TESSERA_PLUGIN_COMPONENTS ${component})
endforeach()
# The content of the Python wheel (python/pyproject.toml). Wheels have no links, so the library there has its soname.
if(SKBUILD)
  set_target_properties(tessera PROPERTIES VERSION ${TESSERA_SOVERSION})
endif()
set(in_wheel COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS tessera_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${in_wheel})
install(TARGETS tessera LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${in_wheel} NAMELINK_SKIP)
if(TESSERA_PLUGIN_TARGETS)
  install(TARGETS ${TESSERA_PLUGIN_TARGETS} LIBRARY DESTINATION ${TESSERA_PLUGIN_DIR} PERMISSIONS ${owner_writes}
    ${in_wheel})
endif()
if(SKBUILD)
  install(FILES LICENSE ${CMAKE_BINARY_DIR}/copyrights/THIRD-PARTY-LICENSES COMPONENT python
    DESTINATION ${SKBUILD_METADATA_DIR}/licenses)
endif()
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 ${in_program})
install(FILES apps/tessera/shell/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME tessera ${in_program})
set(TESSERA_SHARE_DIR ${CMAKE_INSTALL_DATADIR}/tessera)
install(FILES README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE LICENSE-MIT
  DESTINATION ${TESSERA_SHARE_DIR} ${in_program})
install(FILES ${CMAKE_BINARY_DIR}/share/tessera/page.html DESTINATION ${TESSERA_SHARE_DIR} ${in_program})
install(FILES ${CMAKE_BINARY_DIR}/share/tessera/page.html DESTINATION ${TESSERA_SHARE_DIR} ${in_wheel})
install(DIRECTORY docs configs DESTINATION ${TESSERA_SHARE_DIR} ${in_program})
install(DIRECTORY apps/template apps/examples DESTINATION ${TESSERA_SHARE_DIR}/apps ${in_development}
  PATTERN "examples/CMakeLists.txt" EXCLUDE PATTERN "*_test.cc" EXCLUDE)
install(FILES tests/conformance/README.md tests/conformance/QUANTIZATION.md tests/conformance/SHARDING.md
  DESTINATION ${TESSERA_SHARE_DIR}/tests/conformance ${in_program})
install(DIRECTORY tests/outside DESTINATION ${TESSERA_SHARE_DIR}/tests ${in_program})
install(CODE "set(FOLDER \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${TESSERA_SHARE_DIR})
  include(${CMAKE_CURRENT_LIST_DIR}/TesseraInstalledLinks.cmake)" ${in_program})
install(DIRECTORY core/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${in_development}
  FILES_MATCHING PATTERN "*.h")

install(EXPORT tessera NAMESPACE tessera:: FILE tesseraTargets.cmake DESTINATION ${TESSERA_CMAKE_DIR}
  ${in_development})
configure_package_config_file(cmake/tesseraConfig.cmake.in ${CMAKE_BINARY_DIR}/tesseraConfig.cmake
  INSTALL_DESTINATION ${TESSERA_CMAKE_DIR} PATH_VARS TESSERA_PLUGIN_DIR NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tesseraConfig.cmake ${CMAKE_BINARY_DIR}/tesseraConfigVersion.cmake
  cmake/TesseraPlugin.cmake cmake/plugin.map DESTINATION ${TESSERA_CMAKE_DIR} ${in_development})

file(RELATIVE_PATH TESSERA_PREFIX_FROM_PC "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" TESSERA_PREFIX_FROM_PC "${TESSERA_PREFIX_FROM_PC}")
configure_file(cmake/tessera.pc.in ${CMAKE_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tessera.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  ${in_development})
