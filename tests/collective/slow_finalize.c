// A test preloads this into ranks: MPI_Finalize takes 2.1 s, as if the launcher had not answered in time. The process
// says how long it stays after that.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static double ended;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int MPI_Finalize(void) {
  void* const mpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_NOLOAD);
  int (*const finalize)(void) = mpi == NULL ? NULL : (int (*)(void))dlsym(mpi, "MPI_Finalize");
  const struct timespec wait = {2, 100000000};
  nanosleep(&wait, NULL);
  const int code = finalize == NULL ? 0 : finalize();
  ended = now();
  return code;
}

__attribute__((destructor)) static void say(void) {
  if (ended > 0) fprintf(stderr, "stayed %d ms after MPI_Finalize\n", (int)(1e3 * (now() - ended)));
}
