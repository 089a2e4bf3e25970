// The linker replaces the system's functions by these (--wrap) for the large world, as by ../system_calls.cc.
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "world.h"

namespace tessera::tcp::simulation {
namespace {

constexpr int kEvent = 1 << 24;  // each engine's event; nothing ever sets it

bool is_large() { return Fiber::is_inside() && LargeWorld::current() != nullptr; }

}  // namespace
}  // namespace tessera::tcp::simulation

using tessera::tcp::simulation::is_large;
using tessera::tcp::simulation::kEvent;
using tessera::tcp::simulation::LargeWorld;

#define REAL(name) __asm__("__real_" #name)
#define WRAPPED(name) __asm__("__wrap_" #name)

extern "C" {
int large_real_poll(pollfd*, nfds_t, int) REAL(poll);
int large_real_close(int) REAL(close);
int large_real_eventfd(unsigned, int) REAL(eventfd);
int large_real_eventfd_write(int, uint64_t) REAL(eventfd_write);
int large_real_nanosleep(const timespec*, timespec*) REAL(nanosleep);
int64_t large_real_now() REAL(_ZNSt6chrono3_V212steady_clock3nowEv);

int large_poll(pollfd*, nfds_t, int) WRAPPED(poll);
int large_close(int) WRAPPED(close);
int large_eventfd(unsigned, int) WRAPPED(eventfd);
int large_eventfd_write(int, uint64_t) WRAPPED(eventfd_write);
int large_nanosleep(const timespec*, timespec*) WRAPPED(nanosleep);
int64_t large_now() WRAPPED(_ZNSt6chrono3_V212steady_clock3nowEv);

int large_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  return is_large() ? LargeWorld::current()->poll(fds, count, timeout_ms) : large_real_poll(fds, count, timeout_ms);
}
int large_close(int fd) { return fd == kEvent ? 0 : large_real_close(fd); }
int large_eventfd(unsigned value, int flags) { return is_large() ? kEvent : large_real_eventfd(value, flags); }
int large_eventfd_write(int fd, uint64_t value) { return fd == kEvent ? 0 : large_real_eventfd_write(fd, value); }
int large_nanosleep(const timespec* how_long, timespec* left) {
  if (!is_large()) return large_real_nanosleep(how_long, left);
  LargeWorld::current()->sleep(std::chrono::seconds(how_long->tv_sec) + std::chrono::nanoseconds(how_long->tv_nsec));
  return 0;
}
int64_t large_now() { return is_large() ? LargeWorld::current()->now().time_since_epoch().count() : large_real_now(); }
}
