// Preloaded into a program by figures.sh, it puts large allocations into a mapped file, so that tables are on a disk
// without a special kernel.
//   cc -shared -fPIC -O2 -o mapped_tables.so '-DMAPPED_FOLDER="/var/tmp"' mapped_tables.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kMost = 256 };
static const size_t kLarge = (size_t)64 << 20, kAlign = (size_t)2 << 20;
static struct {
  void* at;
  size_t bytes;
} mapped[kMost];

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  static int (*next)(void**, size_t, size_t);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "posix_memalign");
  if (bytes < kLarge) return next(out, alignment, bytes);
  char path[] = MAPPED_FOLDER "/mapped-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return ENOMEM;
  unlink(path);
  if (ftruncate(file, (off_t)bytes) != 0) return ENOMEM;
  char* room = mmap(NULL, bytes + kAlign, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return ENOMEM;
  char* at = (char*)(((uintptr_t)room + kAlign - 1) / kAlign * kAlign);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) return ENOMEM;
  madvise(at, bytes, MADV_RANDOM);
  close(file);
  for (int i = 0; i < kMost; ++i) {
    if (mapped[i].at != NULL) continue;
    mapped[i].at = at;
    mapped[i].bytes = bytes;
    break;
  }
  *out = at;
  return 0;
}

void free(void* memory) {
  static void (*next)(void*);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "free");
  for (int i = 0; i < kMost && memory != NULL && ((uintptr_t)memory % kAlign) == 0; ++i) {
    if (mapped[i].at != memory) continue;
    munmap(memory, mapped[i].bytes);
    mapped[i].at = NULL;
    return;
  }
  next(memory);
}
