#include "storage/base/page_toucher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; glibc 2.36 does not name it yet.
#endif

namespace ckptd {
namespace {

enum HelperExit { kHelperSmall = 10, kHelperHuge = 11, kHelperNoMemory = 12 };

constexpr uint64_t kHugePage = uint64_t{2} << 20;

// At an address that lies in a huge page as the offset does in the file: nothing is gathered
// otherwise, and the kernel chooses such an address only where huge pages are the rule.
void* Map(int memfd, uint64_t offset, uint64_t bytes) {
  void* room = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return MAP_FAILED;
  uint64_t begin = reinterpret_cast<uintptr_t>(room);
  uint64_t shift = (offset - begin) % kHugePage;
  return mmap(static_cast<char*>(room) + shift, bytes, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, memfd, static_cast<off_t>(offset));
}

void Touch(void* memory, uint64_t at) {
  auto* byte = static_cast<volatile char*>(memory) + at;
  *byte = *byte;
}

// Asks for huge pages while only one small page of each is there: ten times as fast as gathering
// pages that all are, since nothing is copied. (Of none the kernel would make nothing.) Where it
// fails, all is as before, and nobody was killed for it.
bool GatherAhead(void* memory, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kHugePage) Touch(memory, at);
  return madvise(memory, bytes, MADV_COLLAPSE) == 0;
}

// The helper: a copy of this process in which only system calls are safe.
[[noreturn]] void Help(pid_t parent, int memfd, uint64_t offset, uint64_t bytes, bool huge) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // It holds copies of every descriptor, locks among them.
  if (getppid() != parent) _exit(kHelperNoMemory);
  int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) (void)!write(score, "1000", 4);
  void* memory = Map(memfd, offset, bytes);
  if (memory == MAP_FAILED) _exit(kHelperNoMemory);
  bool gathered = huge && GatherAhead(memory, bytes);
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL) _exit(kHelperNoMemory);
    for (uint64_t at = 0; at < bytes; at += 4096) {  // Before Linux 5.14.
      Touch(memory, at);
    }
  }
  if (huge && !gathered) gathered = madvise(memory, bytes, MADV_COLLAPSE) == 0;
  _exit(gathered ? kHelperHuge : kHelperSmall);
}

}  // namespace

absl::StatusOr<PageSize> TouchPages(int memfd, uint64_t offset_bytes, uint64_t bytes, bool huge) {
  pid_t parent = getpid();
  // Not fork(): handlers that libraries have registered for it are not for us.
  long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child < 0) return ErrnoStatus(errno, "the helper that touches memory");
  if (child == 0) Help(parent, memfd, offset_bytes, bytes, huge);
  int status = 0;
  while (waitpid(static_cast<pid_t>(child), &status, 0) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "waiting for the helper that touches memory");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kHelperSmall) return PageSize::kSmall;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kHelperHuge) return PageSize::kHuge;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no memory for ", bytes, " bytes of an arena: the helper that touched them ",
      WIFSIGNALED(status) ? absl::StrCat("was killed by signal ", WTERMSIG(status)) : "got none"));
}

}  // namespace ckptd
