// Runs a program in a host that allows less:
//
//     in_host [RESTRICTION…] -- PROGRAM ARGUMENT…
//
// Exit code 77: this process may not restrict itself so.
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

// The calls with which io_uring registers memory; others it cannot do without.
constexpr uint32_t kRegisterBuffers2 = 15;
constexpr uint32_t kRegisterBuffersUpdate = 16;

uint32_t ErrorNamed(const std::string& name) {
  if (name == "EPERM") return EPERM;
  if (name == "ENOSYS") return ENOSYS;
  if (name == "EINVAL") return EINVAL;
  if (name == "EOPNOTSUPP") return EOPNOTSUPP;
  return ENOMEM;
}

bool Install(std::vector<sock_filter> filter) {
  sock_fprog program = {.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool FailCall(uint32_t call, uint32_t error) {
  return Install({
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  });
}

bool FailBufferRegistration(uint32_t error) {
  return Install({
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRegisterBuffers2, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRegisterBuffersUpdate, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  });
}

// Also for root, whom the limit does not bind otherwise.
bool LimitMemlock(rlim_t bytes) {
  rlimit limit = {bytes, bytes};
  return ::prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) == 0 &&
         ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

bool BecomeUser(uid_t uid) {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(uid, uid, uid) == 0 &&
         ::setresuid(uid, uid, uid) == 0;
}

bool MakeRunReadOnly() {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("ckptd-test", "/run", "tmpfs", MS_RDONLY, nullptr) == 0;
}

bool Restrict(const std::string& what, const std::string& value) {
  if (what == "--uring-setup") return FailCall(SYS_io_uring_setup, ErrorNamed(value));
  if (what == "--flock") return FailCall(SYS_flock, ErrorNamed(value));
  if (what == "--rename") return FailCall(SYS_renameat, ErrorNamed(value));
  if (what == "--register-buffers") return FailBufferRegistration(ErrorNamed(value));
  if (what == "--memlock") return LimitMemlock(std::strtoull(value.c_str(), nullptr, 10));
  if (what == "--huge-pages") return ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0;
  if (what == "--uid") return BecomeUser(static_cast<uid_t>(std::stoul(value)));
  return what == "--run" && MakeRunReadOnly();
}

}  // namespace

int main(int argc, char** argv) {
  int program = -1;
  for (int i = 1; i < argc && program < 0; ++i) {
    if (std::string(argv[i]) == "--") program = i + 1;
  }
  if (program < 0 || program >= argc) return 2;
  // The user that this becomes may not be allowed to see where the program lies.
  int fd = ::open(argv[program], O_RDONLY | O_CLOEXEC);
  for (int i = 1; i + 2 < program; i += 2) {
    if (!Restrict(argv[i], argv[i + 1])) {
      std::perror(argv[i]);
      return 77;
    }
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::fexecve(fd, argv + program, environ);
  std::perror(argv[program]);
  return 1;
}
