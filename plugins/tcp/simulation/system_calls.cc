// The linker replaces the system's functions by these in the simulation's program (--wrap). Inside a World they call
// the world, elsewhere the system. The engine and the transport are therefore simulated unchanged.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "world.h"

namespace tessera::tcp::simulation {
namespace {

bool is_simulated() { return Fiber::is_inside() && World::current() != nullptr; }
bool is_simulated(int fd) { return fd >= World::kFirstDescriptor && World::current() != nullptr; }

}  // namespace
}  // namespace tessera::tcp::simulation

using tessera::tcp::simulation::is_simulated;
using tessera::tcp::simulation::World;

#define REAL(name) __asm__("__real_" #name)
#define WRAPPED(name) __asm__("__wrap_" #name)

extern "C" {
int real_poll(pollfd*, nfds_t, int) REAL(poll);
ssize_t real_sendmsg(int, const msghdr*, int) REAL(sendmsg);
ssize_t real_recvmsg(int, msghdr*, int) REAL(recvmsg);
ssize_t real_send(int, const void*, size_t, int) REAL(send);
ssize_t real_recv(int, void*, size_t, int) REAL(recv);
int real_close(int) REAL(close);
int real_eventfd(unsigned, int) REAL(eventfd);
int real_eventfd_write(int, uint64_t) REAL(eventfd_write);
int real_ioctl(int, unsigned long, void*) REAL(ioctl);
int real_sched_yield() REAL(sched_yield);
int real_nanosleep(const timespec*, timespec*) REAL(nanosleep);
int real_getpid() REAL(getpid);
int real_open(const char*, int, mode_t) REAL(open);
ssize_t real_process_vm_readv(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)
    REAL(process_vm_readv);
int64_t real_now() REAL(_ZNSt6chrono3_V212steady_clock3nowEv);

int wrapped_poll(pollfd*, nfds_t, int) WRAPPED(poll);
ssize_t wrapped_sendmsg(int, const msghdr*, int) WRAPPED(sendmsg);
ssize_t wrapped_recvmsg(int, msghdr*, int) WRAPPED(recvmsg);
ssize_t wrapped_send(int, const void*, size_t, int) WRAPPED(send);
ssize_t wrapped_recv(int, void*, size_t, int) WRAPPED(recv);
int wrapped_close(int) WRAPPED(close);
int wrapped_eventfd(unsigned, int) WRAPPED(eventfd);
int wrapped_eventfd_write(int, uint64_t) WRAPPED(eventfd_write);
int wrapped_ioctl(int, unsigned long, ...) WRAPPED(ioctl);
int wrapped_sched_yield() WRAPPED(sched_yield);
int wrapped_nanosleep(const timespec*, timespec*) WRAPPED(nanosleep);
int wrapped_getpid() WRAPPED(getpid);
int wrapped_open(const char*, int, ...) WRAPPED(open);
ssize_t wrapped_process_vm_readv(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)
    WRAPPED(process_vm_readv);
int64_t wrapped_now() WRAPPED(_ZNSt6chrono3_V212steady_clock3nowEv);

int wrapped_poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (!is_simulated()) return real_poll(fds, count, timeout_ms);
  return World::current()->poll(fds, count, timeout_ms);
}

ssize_t wrapped_sendmsg(int fd, const msghdr* message, int flags) {
  if (!is_simulated(fd)) return real_sendmsg(fd, message, flags);
  World::current()->step();
  return World::current()->send(fd, message->msg_iov, message->msg_iovlen);
}

ssize_t wrapped_recvmsg(int fd, msghdr* message, int flags) {
  if (!is_simulated(fd)) return real_recvmsg(fd, message, flags);
  World::current()->step();
  return World::current()->receive(fd, message->msg_iov, message->msg_iovlen);
}

// No other rank runs during this call, because notices are sent under a lock.
ssize_t wrapped_send(int fd, const void* data, size_t bytes, int flags) {
  if (!is_simulated(fd)) return real_send(fd, data, bytes, flags);
  const iovec piece{const_cast<void*>(data), bytes};
  return World::current()->send(fd, &piece, 1, /*few=*/true);
}

ssize_t wrapped_recv(int fd, void* data, size_t bytes, int flags) {
  if (!is_simulated(fd)) return real_recv(fd, data, bytes, flags);
  const iovec piece{data, bytes};
  World::current()->step();
  return World::current()->receive(fd, &piece, 1);
}

int wrapped_close(int fd) {
  if (!is_simulated(fd)) return real_close(fd);
  World::current()->close(fd);
  return 0;
}

int wrapped_eventfd(unsigned value, int flags) {
  return is_simulated() ? World::current()->event() : real_eventfd(value, flags);
}

int wrapped_eventfd_write(int fd, uint64_t value) {
  if (!is_simulated(fd)) return real_eventfd_write(fd, value);
  World::current()->write_event(fd);
  return 0;
}

int wrapped_ioctl(int fd, unsigned long request, ...) {
  va_list more;
  va_start(more, request);
  void* const argument = va_arg(more, void*);
  va_end(more);
  if (!is_simulated(fd)) return real_ioctl(fd, request, argument);
  *static_cast<int*>(argument) = World::current()->unacknowledged(fd);  // only SIOCOUTQ is used
  return 0;
}

int wrapped_sched_yield() {
  if (!is_simulated()) return real_sched_yield();
  World::current()->step();
  return 0;
}

int wrapped_nanosleep(const timespec* how_long, timespec* left) {
  if (!is_simulated()) return real_nanosleep(how_long, left);
  World::current()->sleep(std::chrono::seconds(how_long->tv_sec) + std::chrono::nanoseconds(how_long->tv_nsec));
  return 0;
}

int wrapped_getpid() { return is_simulated() ? World::current()->process() : real_getpid(); }

// /proc/PROCESS/fd/N of a simulated process is a descriptor of this process.
int wrapped_open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = static_cast<mode_t>((flags & O_CREAT) != 0 ? va_arg(more, int) : 0);
  va_end(more);
  int process = 0, file = 0;
  char own[64];
  if (is_simulated() && std::sscanf(path, "/proc/%d/fd/%d", &process, &file) == 2) {
    std::snprintf(own, sizeof(own), "/proc/self/fd/%d", file);
    path = own;
  }
  return real_open(path, flags, mode);
}

ssize_t wrapped_process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                 unsigned long there_count, unsigned long flags) {
  if (!is_simulated()) return real_process_vm_readv(process, here, here_count, there, there_count, flags);
  if (!World::current()->can_read(process)) {
    errno = ESRCH;
    return -1;
  }
  const ssize_t n = real_process_vm_readv(real_getpid(), here, here_count, there, there_count, flags);
  World::current()->step();
  return n;
}

int64_t wrapped_now() { return is_simulated() ? World::current()->now().time_since_epoch().count() : real_now(); }
}
