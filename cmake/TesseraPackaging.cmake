# Debian packages, one for each component of cmake/TesseraInstall.cmake. scripts/release makes them by `cpack` in a
# build with the prefix /usr.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The Tessera authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})
set(CPACK_STRIP_FILES ${TESSERA_STRIP})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${CPACK_PACKAGE_VENDOR}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)

# tessera_package(COMPONENT PACKAGE DESCRIPTION [components that it needs...])
macro(tessera_package component package description)
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${description}")
  set(CPACK_COMPONENT_${upper}_DEPENDS ${ARGN})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_${upper}_DEBUGINFO_PACKAGE OFF)
  set(folder ${CMAKE_BINARY_DIR}/copyrights/${package})  # each package needs the library's, which has the whole text
  configure_file(${PROJECT_SOURCE_DIR}/scripts/packaging/copyright.in ${folder}/copyright @ONLY)
  install(FILES ${folder}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component}
    EXCLUDE_FROM_ALL)
endmacro()
set(CPACK_COMPONENTS_ALL)
set(library_package libtessera${TESSERA_SOVERSION})  # as the soname says
tessera_package(library ${library_package}
  "The library and its plugins: sharders, CPU kernels, optimizers, dense layers, readers, the tcp transport." "")
tessera_package(program tessera
  "The program, its documents and job files: train, quantize, serve, bench and verify." library)
tessera_package(development libtessera-dev
  "Headers for applications and plugins, packages for CMake and pkg-config, examples, the runner of recorded cases."
  library)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS libdlpack-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(optional_cuda "CUDA kernels, and the NCCL transport, which needs libnccl2 of NVIDIA's repository.")
set(optional_mpi "The MPI transport, on Open MPI.")
set(optional_grpc "The gRPC endpoint of `tessera serve`.")
foreach(component cuda mpi grpc)
  if(component IN_LIST TESSERA_PLUGIN_COMPONENTS)
    tessera_package(${component} tessera-${component} "${optional_${component}}" library)
  endif()
endforeach()
if(TARGET tessera_onnx)
  tessera_package(onnx tessera-onnx "The program behind `tessera model export` and `import`: ONNX files." program)
endif()
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS libnccl2)

# The library's package also has the licences of what is compiled into any of these files, from the Debian packages that
# it came from. What is linked as a shared library is in other packages.
set(licences)
foreach(package libboost1.81-dev nlohmann-json3-dev libtomlplusplus-dev libdlpack-dev libxxhash-dev libhwy-dev
    libjs-chart.js libhnswlib-dev)
  set(file /usr/share/doc/${package}/copyright)
  if(EXISTS ${file})
    file(READ ${file} text)
    string(APPEND licences "==== ${package}\n\n${text}\n\n")
  endif()
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/copyrights/THIRD-PARTY-LICENSES "${licences}")
install(FILES ${CMAKE_BINARY_DIR}/copyrights/THIRD-PARTY-LICENSES COMPONENT library EXCLUDE_FROM_ALL
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${library_package})

include(CPack)
