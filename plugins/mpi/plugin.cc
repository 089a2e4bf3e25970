#include "tessera/sdk/plugin.h"
#include "group.h"

TESSERA_PLUGIN(
    "mpi", "1.0.0",
    tessera::sdk::component<tessera::mpi::Mpi>({.id = "mpi",
                                                .version = "1.0.0",
                                                .about = "Open MPI, for jobs that mpirun or srun --mpi=pmix started",
                                                .priority = 20}));
