# The sources of the NCCL plugin, which tests/nccl also compiles, over a stand-in for NCCL.
set(TESSERA_NCCL_SOURCES communicator.cc group.cc plugin.cc watch.cc)
list(TRANSFORM TESSERA_NCCL_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
