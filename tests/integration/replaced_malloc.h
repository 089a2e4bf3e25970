// Replaces malloc in a test program. One of its source files defines what to count:
//
//   namespace tessera::test { void on_allocation() { ... } }
//
// Does nothing under sanitizers, which replace malloc themselves.
#pragma once

#include <stddef.h>
#include <stdlib.h>

#include <cerrno>

namespace tessera::test {

void on_allocation();  // called before each allocation, in its thread; must not allocate

}  // namespace tessera::test

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t n) { return tessera::test::on_allocation(), __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return tessera::test::on_allocation(), __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return tessera::test::on_allocation(), __libc_realloc(p, n); }
void* memalign(size_t alignment, size_t n) { return tessera::test::on_allocation(), __libc_memalign(alignment, n); }
void* aligned_alloc(size_t alignment, size_t n) {
  return tessera::test::on_allocation(), __libc_memalign(alignment, n);
}
int posix_memalign(void** out, size_t alignment, size_t n) {
  tessera::test::on_allocation();
  *out = __libc_memalign(alignment, n);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* p) { __libc_free(p); }
}
