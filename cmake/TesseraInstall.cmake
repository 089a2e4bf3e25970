# Installation is filled in with the package (find_package(tessera)).
